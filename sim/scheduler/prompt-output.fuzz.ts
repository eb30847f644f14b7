import { describe, expect, test } from 'vitest';
import { Prng } from '../../src/base/prng.ts';
import type { BlockId } from '../../src/core/ids.ts';
import type { EngineRequest, RequestUpdate } from '../../src/core/request.ts';
import type { BlockTable } from '../../src/core/step.ts';
import type { ExecutedStep } from '../../src/scheduler/contract.ts';
import { fuzzRuns } from '../../test/support/long-form.ts';
import { harness } from '../harness.ts';
import { randomSpec } from '../random-spec.ts';
import { makeRequest } from '../workload.ts';

/**
 * Requests for results of their prompts, in random worlds: chunks of all sizes, too few blocks, shared prefixes, blocks that become
 * invalid, and sequences that are left out. The reference is each request alone in a world without faults. In the fake model, a
 * result depends on all KV that the token reads. KVASIR_FUZZ_RUNS sets the number of runs, KVASIR_FUZZ_SEED the first seed.
 */
const runs = fuzzRuns(500);
const firstSeed = Number(process.env.KVASIR_FUZZ_SEED ?? 1);
const promptMax = 60;
const outputMax = 10;

describe('results of prompts', () => {
  test(`each is delivered once, in order and with the right value, in ${runs} random worlds`, () => {
    let preemptions = 0;
    let recomputed = 0;
    for (let seed = firstSeed; seed < firstSeed + runs; seed++) {
      try {
        const totals = runOnce(seed);
        preemptions += totals.preemptions;
        recomputed += totals.recomputed;
      } catch (error) {
        throw new Error(`rerun with KVASIR_FUZZ_SEED=${seed} KVASIR_FUZZ_RUNS=1`, { cause: error });
      }
    }
    if (runs < 100) return;
    expect(preemptions, 'preemptions of requests with results').toBeGreaterThan(runs / 20);
    expect(recomputed, 'tokens computed again').toBeGreaterThan(runs);
  });
});

function runOnce(seed: number) {
  const prng = new Prng(seed);
  const spec = randomSpec(prng, promptMax + outputMax, prng.chance(0.5));
  const options = {
    maxNumBatchedTokens: prng.pick([1, 7, 16, 64]),
    maxNumSeqs: prng.pick([2, 4]),
    enablePrefixCaching: prng.chance(0.8),
    maxModelLen: promptMax + outputMax + 1,
  };
  const story = Array.from({ length: promptMax }, () => prng.between(0, 99));
  const requests = Array.from({ length: prng.between(2, 5) }, (_, i) => randomRequest(prng, `r${i}`, story));
  const world = harness(0, options, 4, spec);
  const found = new Map(requests.map(({ id }) => [id, [] as number[]]));
  const totals = { preemptions: 0, recomputed: 0 };
  const pending = [...requests];
  const faultRate = prng.pick([0, 0.1, 0.3]);
  for (let steps = 0; pending.length > 0 || world.scheduler.hasWork(); steps++) {
    if (pending.length > 0 && prng.chance(0.3)) world.scheduler.add(pending.shift()!);
    const plan = world.scheduler.plan();
    if (plan === undefined) continue;
    const invalid: BlockId[] = [];
    for (const { blockTables } of plan.sequences)
      for (const { ids, length } of blockTables)
        for (let i = 0; i < length; i++)
          if (steps < 200 && ids[i] !== 0 && prng.chance(faultRate / 10)) invalid.push(ids[i] as BlockId);
    for (const block of invalid) world.runner.overwrite(block);
    const hasInvalid = ({ ids, length }: BlockTable): boolean =>
      ids.subarray(0, length).some((block) => invalid.includes(block as BlockId));
    // A worker may leave out sequences that have an invalid block, or compute them in vain.
    const leftOut = prng.chance(0.5)
      ? plan.sequences.flatMap(({ blockTables }, i) => (blockTables.some(hasInvalid) ? [i] : []))
      : [];
    const result: ExecutedStep = {
      ...world.runner.execute(plan, leftOut),
      invalidBlocks: [...new Set(invalid)],
      leftOut,
    };
    for (const { requestId, prompt, stats, finish } of world.scheduler.apply(plan, result)) {
      found.get(requestId)!.push(...valuesOf(prompt));
      if (finish === undefined) continue;
      expect(finish.reason).toBe('length');
      const { pooling, params } = requests.find(({ id }) => id === requestId)!;
      if (pooling === undefined && params.promptLogprobs === undefined) continue;
      if (pooling !== 'last') expect(stats.cachedTokens).toBe(0);
      totals.preemptions += stats.preemptions;
      totals.recomputed += stats.recomputedTokens;
    }
    world.scheduler.checkInvariants();
  }
  for (const request of requests) expect(found.get(request.id), request.id).toEqual(alone(request, spec));
  return totals;
}

function randomRequest(prng: Prng, id: string, story: readonly number[]): EngineRequest {
  const length = prng.between(1, promptMax);
  const shared = prng.between(0, length);
  const prompt = [...story.slice(0, shared), ...Array.from({ length: length - shared }, () => prng.between(0, 99))];
  const maxTokens = prng.between(0, outputMax);
  const params = { ignoreEos: true, maxTokens };
  switch (prng.between(0, 3)) {
    case 0:
      return makeRequest(id, prompt, { params });
    case 1:
      return makeRequest(id, prompt, {
        params: { ...params, maxTokens: 0 },
        pooling: prng.pick(['mean', 'last'] as const),
      });
    default:
      return makeRequest(id, prompt, { params: { ...params, promptLogprobs: 1 } });
  }
}

const valuesOf = (prompt: RequestUpdate['prompt']): number[] => [
  ...(prompt?.logprobs ?? []).map(({ logprob }) => logprob),
  ...(prompt?.hidden ?? []),
];

/** The results that the request has alone. */
function alone(request: EngineRequest, spec: Parameters<typeof harness>[3]): number[] {
  const world = harness(0, { maxNumBatchedTokens: 512, maxModelLen: promptMax + outputMax + 1 }, 4, spec);
  world.scheduler.add(request);
  const found: number[] = [];
  while (world.scheduler.hasWork())
    for (const { prompt } of world.apply(world.scheduler.plan()!)) found.push(...valuesOf(prompt));
  const { pooling, params, promptTokens } = request;
  const positions = pooling === 'last' ? 1 : pooling === 'mean' ? promptTokens.length : promptTokens.length - 1;
  expect(found).toHaveLength(pooling === undefined && params.promptLogprobs === undefined ? 0 : positions);
  return found;
}
