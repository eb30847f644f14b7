import { expect, test } from 'vitest';
import { fuzzRuns } from '../../test/support/long-form.ts';
import { Prng } from '../base/prng.ts';
import { AUTO_FACTOR, Pace } from './pace.ts';
import type { Slice } from './slice-sizes.ts';
import { emptyLoad, type StepLoad, withPrompt } from './step-load.ts';

/**
 * Layered prefill (ADR 27) on random machines. Tokens of a chunk by layers cost less than tokens that a step computes with all
 * layers, or as much. The same prompts are computed with and without such chunks.
 *
 * More runs: KVASIR_FUZZ_RUNS; another first seed: KVASIR_FUZZ_SEED.
 */
const runs = fuzzRuns(100);
const firstSeed = Number(process.env.KVASIR_FUZZ_SEED ?? 1);
/** Steps may be too long until each kind has been measured a few times. */
const warmUpSteps = 40;

interface Machine {
  readonly decodeMs: number;
  readonly tokenMs: number;
  /** What a token of a chunk by layers costs less than another token. */
  readonly gain: number;
  readonly contextMs: number;
  readonly reachMs: number;
  readonly noise: number;
}

function randomMachine(prng: Prng): Machine {
  const tokenMs = 10 ** (2 * prng.unit() - 1);
  return {
    tokenMs,
    decodeMs: tokenMs * (3 + 12 * prng.unit()),
    gain: prng.pick([1, 1, 1.5, 2, 4]),
    contextMs: (tokenMs * prng.unit()) / 1000,
    reachMs: (tokenMs * prng.unit()) / 100,
    noise: prng.pick([0, 0.03, 0.1]),
  };
}

function exactMs(machine: Machine, load: StepLoad): number {
  const { decodeMs, tokenMs, gain, contextMs, reachMs } = machine;
  const { promptTokens, promptContext, promptReach, layerShare } = load;
  const perToken = layerShare < 1 ? tokenMs / gain : tokenMs;
  return decodeMs + layerShare * (perToken * promptTokens + contextMs * promptContext + reachMs * promptReach);
}

interface Outcome {
  readonly ms: number;
  readonly steps: number;
  readonly over: number;
  readonly slices: number;
}

/** Computes prompts one after another beside a stream. */
function simulate(seed: number, hasSlices: boolean): Outcome {
  const prng = new Prng(seed);
  const machine = randomMachine(prng);
  const layerCount = prng.pick([5, 16, 28, 80]);
  const lengths = Array.from({ length: 4 }, () => prng.between(500, 3000));
  const pace = new Pace('auto');
  const alone = (): StepLoad => ({ ...emptyLoad(), decodes: 1, streams: 1 });
  const limitMs = AUTO_FACTOR * exactMs(machine, alone());
  let [ms, steps, over, slices] = [0, 0, 0, 0];
  const run = (load: StepLoad): void => {
    const exact = exactMs(machine, load);
    // After a long context, the fewest tokens with all layers may take longer than the limit, too.
    const least = exactMs(machine, withChunk(load.promptReach, 7, 1));
    if (++steps > warmUpSteps && exact > 1.25 * Math.max(limitMs, least) && load.promptTokens > 16) over++;
    if (load.layerShare < 1) slices++;
    ms += exact;
    pace.observe(load, exact * (1 + machine.noise * (2 * prng.unit() - 1)));
    pace.checkInvariants();
  };
  const withChunk = (start: number, tokens: number, layerShare: number): StepLoad => ({
    ...withPrompt(alone(), start, tokens),
    layerShare,
  });
  for (const length of lengths) {
    for (let start = 0; start < length; ) {
      const paced = Math.min(pace.promptTokensAllowed(alone(), start), length - start);
      if (paced === 0) {
        run(alone());
        continue;
      }
      const tokensMax = Math.min(length - start - 1, 512);
      const slice: Slice | undefined = hasSlices
        ? pace.sliceOf(alone(), { start, tokensMax, layerCount, paced })
        : undefined;
      if (slice === undefined) run(withChunk(start, paced, 1));
      else {
        const rest = tokensMax - slice.tokens;
        if (rest < 0 || (rest > 0 && rest < 32))
          throw new Error(`a chunk of ${slice.tokens} tokens leaves ${rest}, seed ${seed}`);
        for (let layer = 0; layer < layerCount; layer += slice.layers) {
          while (pace.promptTokensAllowed(alone(), start) === 0) run(alone());
          run(withChunk(start, slice.tokens, Math.min(slice.layers, layerCount - layer) / layerCount));
        }
      }
      start += slice?.tokens ?? paced;
    }
  }
  return { ms, steps, over, slices };
}

test(`on ${runs} random machines, prompts with chunks by layers take at most a tenth longer than without, and often less`, () => {
  const ratios: number[] = [];
  for (let seed = firstSeed; seed < firstSeed + runs; seed++) {
    const without = simulate(seed, false);
    const sliced = simulate(seed, true);
    const again = `KVASIR_FUZZ_SEED=${seed} KVASIR_FUZZ_RUNS=1`;
    if (sliced.slices === 0) throw new Error(`no step computes a chunk by layers: ${again}`);
    if (sliced.over > Math.max(4, 0.05 * sliced.steps))
      throw new Error(`${sliced.over} of ${sliced.steps} steps were too long: ${again}`);
    const ratio = sliced.ms / without.ms;
    if (ratio > 1.1) throw new Error(`${ratio.toFixed(2)} times as long: ${again}`);
    ratios.push(ratio);
  }
  const sorted = ratios.sort((a, b) => a - b);
  if (runs > 1) expect(sorted[Math.floor(runs / 2)]).toBeLessThan(0.9);
});
