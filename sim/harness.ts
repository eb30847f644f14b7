import { sha256 } from '../src/base/sha256.ts';
import type { BlockCount, BlockId, TokenCount } from '../src/core/ids.ts';
import type { KvCacheSpec } from '../src/core/kv-spec.ts';
import type { RequestUpdate } from '../src/core/request.ts';
import type { StepPlan } from '../src/core/step.ts';
import type { SchedulerOptions } from '../src/scheduler/contract.ts';
import { Scheduler } from '../src/scheduler/scheduler.ts';
import { FakeRunner } from './fake-runner.ts';
import { keptPlan } from './kept.ts';
import { makeRequest } from './workload.ts';

/** A specification with one full-attention group and this many blocks besides the null block. */
export const onePoolSpec = (blocks: number, blockSize = 4): KvCacheSpec => ({
  groups: [{ kind: 'full', blockSize: blockSize as TokenCount, layers: [0] }],
  blockBytes: 64,
  blockCount: (blocks + 1) as BlockCount,
  fingerprint: 'test',
});

/** A scheduler over a fake runner, stepped by hand. Invariants are checked after each step. */
export function harness(
  blocks: number,
  options: Partial<SchedulerOptions> = {},
  blockSize = 4,
  cacheSpec: KvCacheSpec = onePoolSpec(blocks, blockSize),
) {
  const scheduler = new Scheduler(
    cacheSpec,
    { maxNumBatchedTokens: 64, maxNumSeqs: 8, maxModelLen: 200, enablePrefixCaching: true, policy: 'fcfs', ...options },
    sha256,
  );
  const runner = new FakeRunner(cacheSpec, 1000);
  const finished = new Map<string, RequestUpdate>();
  const outputs = new Map<string, number[]>();
  /** Destroys the content of the blocks `invalid`, runs the plan, and reports these blocks with the result. */
  const apply = (plan: StepPlan, invalid: readonly BlockId[] = []) => {
    for (const block of invalid) runner.overwrite(block);
    const updates = scheduler.apply(plan, { ...runner.execute(plan), invalidBlocks: invalid });
    for (const update of updates) {
      outputs.set(update.requestId, [
        ...(outputs.get(update.requestId) ?? []),
        ...update.newTokens.map(({ token }) => token),
      ]);
      if (update.finish !== undefined) finished.set(update.requestId, update);
    }
    scheduler.checkInvariants();
    return updates;
  };
  const step = (invalid: readonly BlockId[] = []) => {
    const plan = scheduler.plan()!;
    const kept = keptPlan(plan);
    apply(plan, invalid);
    return kept;
  };
  const drain = () => {
    while (scheduler.hasWork()) step();
  };
  return { scheduler, runner, finished, outputs, apply, step, drain };
}

/** "id: spans" of each sequence. */
export const shape = (plan: StepPlan) =>
  plan.sequences.map(
    ({ requestId: id, spans }) => `${id}: ${spans.map(({ start, end }) => `${start}-${end}`).join(' ')}`,
  );
/** The block ids of these indices of a sequence, in the first group. */
export const blocksOf = (plan: StepPlan, id: string, indices: readonly number[]): BlockId[] => {
  const table = plan.sequences.find(({ requestId: other }) => other === id)!.blockTables[0]!;
  return indices.map((index) => table.ids[index] as BlockId);
};

export const range = (count: number, from = 0) => Array.from({ length: count }, (_, i) => i + from);
export const short = (id: string, prompt: number[], maxTokens: number, more: Parameters<typeof makeRequest>[2] = {}) =>
  makeRequest(id, prompt, { ...more, params: { maxTokens, ...more.params } });
