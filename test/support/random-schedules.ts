import type { Prng } from '../../src/base/prng.ts';
import {
  type FaultKind,
  type FaultPlan,
  type FaultRule,
  faultKinds,
  faultRule,
} from '../../src/connector/fault/fault-rules.ts';
import type { SamplingOptions } from '../../src/core/sampling.ts';
import { promptOf } from './drive.ts';
import type { HarnessRequest } from './recovery-harness.ts';

/** Two to six requests, most of them with a shared prefix. */
export function randomRequests(prng: Prng, vocabSize: number): HarnessRequest[] {
  const vocab = Math.min(vocabSize, 250);
  const shared = promptOf(112, prng.uint32(), vocab);
  return Array.from({ length: prng.between(2, 6) }, () => {
    const prefix = prng.chance(0.75) ? shared.slice(0, prng.between(20, 112)) : [];
    const prompt = [...prefix, ...promptOf(prng.between(1, 60), prng.uint32(), vocab)];
    const params: SamplingOptions = prng.chance(0.5)
      ? { temperature: 0 }
      : { temperature: 0.8, seed: prng.uint32(), topP: 0.95, ...(prng.chance(0.3) ? { repetitionPenalty: 1.1 } : {}) };
    return {
      prompt,
      params: {
        maxTokens: prng.pick([prng.between(1, 8), prng.between(8, 24)]),
        ignoreEos: true,
        logprobs: 2,
        ...params,
        // Every token changes the state of the grammar, and with `ignoreEos` the output never ends early.
        ...(prng.chance(0.25) ? { structuredOutputs: { regex: '([a-z .]{1,40}[A-Z,])*' } } : {}),
      },
    };
  });
}

export function randomFaults(prng: Prng, loadTimeoutMs: number): FaultPlan {
  const rules = Array.from({ length: prng.between(1, 3) }, () => randomRule(prng, loadTimeoutMs));
  return { seed: prng.between(0, 2 ** 20), rules };
}

function randomRule(prng: Prng, loadTimeoutMs: number): FaultRule {
  // Each hung call takes a deadline's time: rare, so that hundreds of schedules do not take too long.
  const kinds: readonly FaultKind[] = prng.chance(0.1) ? ['hung'] : faultKinds.filter((kind) => kind !== 'hung');
  const fault = prng.pick(kinds);
  return faultRule({
    fault,
    on: prng.chance(0.8) ? 'load' : 'store',
    probability: prng.pick([0.15, 0.5, 1]),
    delayMs: prng.between(1, Math.floor(loadTimeoutMs * 1.5)),
    ignoresAbort: prng.chance(0.5),
    limit: prng.pick([2, 5, 1000]),
    ...(prng.chance(0.3) ? { blocks: [prng.between(0, 3), prng.between(2, 8)] } : {}),
    ...(prng.chance(0.1) ? { requests: [prng.between(0, 3)] } : {}),
  });
}
