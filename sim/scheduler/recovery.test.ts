import { describe, expect, test } from 'vitest';
import { blockId, type TokenCount } from '../../src/core/ids.ts';
import type { SchedulerOptions } from '../../src/scheduler/contract.ts';
import { blocksOf, harness, onePoolSpec, range, shape, short } from '../harness.ts';
import { referenceOutput } from '../reference.ts';

/**
 * vLLM's recovery tests (tests/v1/kv_connector/unit in 0.33.0) with their names and numbers, and both outcomes. Blocks have 16 tokens; prompts have 100 blocks, of which 99 are hits. In vLLM's tests a sync load brings
 * the 99 blocks. Here they are in the pool, which makes no difference after the report of invalid blocks.
 */
const options = { maxNumBatchedTokens: 2048, maxNumSeqs: 16, maxModelLen: 10_000 };
const prompt = (own: number) => [...range(99 * 16), ...range(16, own)];
const warm = (more: Partial<SchedulerOptions> = {}) => {
  const world = harness(10_000, { ...options, ...more }, 16);
  world.scheduler.add(short('warm', [...range(99 * 16), 1], 1));
  world.drain();
  return world;
};
const block = (index: number) => `${index * 16}-${(index + 1) * 16}`;
/** The expected output tokens of the prompt. */
const reference = (() => {
  const world = harness(10_000, options, 16);
  for (const own of [10_000, 20_000, 30_000]) world.scheduler.add(short(`${own}`, prompt(own), 4));
  world.drain();
  return (own: number) => world.outputs.get(`${own}`);
})();

describe('test_sync_load_failure', () => {
  /** vLLM keeps min(idx) * 16 tokens and computes all after the first invalid block: 1600, 800 and 32 tokens. */
  test.each([
    [[0, 98], `${block(0)} ${block(98).split('-')[0]}-1600`, 48],
    [[50, 98], `${block(50)} ${block(98).split('-')[0]}-1600`, 48],
    [[98], `${block(98).split('-')[0]}-1600`, 32],
  ])('invalid %j: only these blocks and the last block are computed', (invalid, spans, tokens) => {
    const { scheduler, step, drain, runner, outputs, finished } = warm();
    for (const own of [10_000, 20_000, 30_000]) scheduler.add(short(`${own}`, prompt(own), 4));
    const plan = scheduler.plan()!;
    expect(shape(plan)).toEqual(['10000: 1584-1600', '20000: 1584-1600', '30000: 1584-1600']);
    // All three requests share the blocks. The first request fills them again, and the others wait for it.
    const blocks = blocksOf(plan, '20000', invalid);
    for (const block of blocks) runner.overwrite(block);
    expect(scheduler.apply(plan, { ...runner.execute(plan), invalidBlocks: blocks })).toEqual([]);
    scheduler.checkInvariants();
    expect(scheduler.stats()).toMatchObject({ running: 3, waiting: 0 });
    const next = step();
    expect(shape(next)).toEqual([`10000: ${spans}`, '20000: 1584-1600', '30000: 1584-1600']);
    drain();
    for (const own of [10_000, 20_000, 30_000]) expect(outputs.get(`${own}`)).toEqual(reference(own));
    expect(finished.get('10000')!.stats.recomputedTokens).toBe(tokens);
    expect(finished.get('20000')!.stats.recomputedTokens).toBe(16);
  });
});

describe('test_sync_load_failure_with_shared_blocks', () => {
  /**
   * vLLM: both requests continue. Request 2 reads its 50 shared blocks while request 1 still fills them (issue 49250).
   */
  test.each([[[0, 49]], [[25, 49]], [[49]]])('100 blocks, 99 hits, 50 shared blocks, invalid %j', (invalid) => {
    const { scheduler, step, drain, outputs, runner } = warm({ maxNumBatchedTokens: 40 });
    scheduler.add(short('one', prompt(10_000), 4));
    step();
    scheduler.add(short('two', [...range(50 * 16), ...range(16, 77_777)], 4));
    const plan = scheduler.plan()!;
    expect(shape(plan)).toEqual(['one: 1600-1601', 'two: 800-816']);
    const blocks = blocksOf(plan, 'two', invalid);
    for (const block of blocks) runner.overwrite(block);
    expect(scheduler.apply(plan, { ...runner.execute(plan), invalidBlocks: blocks })).toEqual([]);
    const before = runner.tokensComputed;
    while (!outputs.has('two')) step();
    // 16 tokens for each invalid block, once; 16 of request two; up to 3 decodes of request one.
    expect(runner.tokensComputed - before).toBeLessThanOrEqual(invalid.length * 16 + 16 + 3);
    drain();
    expect(outputs.get('one')).toEqual(reference(10_000));
    const alone = harness(10_000, options, 16);
    alone.scheduler.add(short('two', [...range(50 * 16), ...range(16, 77_777)], 4));
    alone.drain();
    expect(outputs.get('two')).toEqual(alone.outputs.get('two'));
  });

  test('I1: a request emits no token before the owner has filled the shared block again, in any number of steps', () => {
    const { scheduler, step, outputs, finished, drain } = warm({ longPrefillTokenThreshold: 4 });
    scheduler.add(short('one', prompt(10_000), 4));
    scheduler.add(short('two', prompt(20_000), 4));
    while (!outputs.has('two')) step();
    const outputLength = outputs.get('two')!.length;
    const plan = scheduler.plan()!;
    const [block] = blocksOf(plan, 'two', [50]);
    scheduler.apply(plan, {
      stepId: plan.stepId,
      sampled: plan.sequences.map(() => undefined),
      invalidBlocks: [block!],
    });
    for (const tokens of ['800-804', '804-808', '808-812']) {
      expect(shape(step())).toEqual([`one: ${tokens}`]);
      expect(outputs.get('two')).toHaveLength(outputLength);
    }
    expect(shape(step())[0]).toMatch(/^one: 812-816/);
    drain();
    expect(outputs.get('two')).toEqual(reference(20_000));
    expect(finished.size).toBe(3);
  });
});

describe('test_sync_recompute_keeps_blocks', () => {
  test('invalid 50 of 99: the request stays running with the same blocks and continues in the next step', () => {
    const { scheduler, apply, outputs } = warm();
    scheduler.add(short('one', prompt(10_000), 4));
    const plan = scheduler.plan()!;
    const all = blocksOf(plan, 'one', range(100));
    expect(apply(plan, blocksOf(plan, 'one', [50]))).toEqual([]);
    expect(scheduler.stats()).toMatchObject({ running: 1, waiting: 0, preemptions: 0 });
    const next = scheduler.plan()!;
    expect(blocksOf(next, 'one', range(100))).toEqual(all);
    expect(shape(next)).toEqual([`one: ${block(50)} ${block(99)}`]);
    apply(next);
    expect(outputs.get('one')).toHaveLength(1);
  });
});

describe('test_error_propagation', () => {
  test('policy fail, invalid 50 of 99: one update with reason error, and all blocks are released', () => {
    const { scheduler, apply } = warm({ kvLoadFailurePolicy: 'fail' });
    scheduler.add(short('one', prompt(10_000), 4));
    const plan = scheduler.plan()!;
    const updates = apply(plan, blocksOf(plan, 'one', [50]));
    expect(updates).toHaveLength(1);
    expect(updates[0]).toMatchObject({ requestId: 'one', newTokens: [], finish: { reason: 'error' } });
    expect(scheduler.stats()).toMatchObject({ running: 0, waiting: 0, blocks: { referenced: 0 } });
    expect(scheduler.hasWork()).toBe(false);
  });

  test('policy fail: requests without an invalid block are not affected', () => {
    const { scheduler, apply } = warm({ kvLoadFailurePolicy: 'fail' });
    scheduler.add(short('one', prompt(10_000), 4));
    scheduler.add(short('two', range(20, 50_000), 4));
    const plan = scheduler.plan()!;
    const updates = apply(plan, blocksOf(plan, 'one', [50]));
    expect(updates.map(({ requestId, finish }) => [requestId, finish?.reason])).toEqual([
      ['one', 'error'],
      ['two', undefined],
    ]);
  });
});

describe('test_cache_pollution_prevention', () => {
  /** vLLM evicts 50 to 99. Here only the invalid block is evicted. */
  test('policy fail, invalid 50: only the invalid block is evicted', () => {
    const { scheduler, apply } = warm({ kvLoadFailurePolicy: 'fail' });
    scheduler.add(short('one', prompt(10_000), 4));
    const plan = scheduler.plan()!;
    apply(plan, blocksOf(plan, 'one', [50]));
    scheduler.add(short('again', prompt(20_000), 4));
    expect(shape(scheduler.plan()!)).toEqual([`again: ${block(50)} ${block(99)}`]);
  });
});

describe('test_kv_load_reject_recompute', () => {
  test('all blocks invalid: the token of that step does not count, and the output equals the baseline', () => {
    const { scheduler, step, drain, outputs } = warm();
    scheduler.add(short('one', prompt(10_000), 4));
    const plan = step();
    expect(outputs.get('one')).toHaveLength(1);
    expect(shape(step(blocksOf(plan, 'one', range(99))))).toEqual(['one: 1600-1601']);
    expect(outputs.get('one')).toHaveLength(1);
    expect(shape(step())).toEqual(['one: 0-1584 1600-1601']);
    drain();
    expect(outputs.get('one')).toEqual(reference(10_000));
  });
});

describe('a worker restarts with empty memory', () => {
  test('each request computes its KV again, shared blocks once, and its output is the same', () => {
    const { scheduler, step, drain, runner, outputs } = warm();
    scheduler.add(short('one', prompt(10_000), 4));
    scheduler.add(short('two', prompt(20_000), 4));
    step();
    step();
    const before = runner.tokensComputed;
    const everything = range(10_000, 1).map(blockId);
    for (const block of everything) runner.overwrite(block);
    expect(scheduler.invalidate(everything)).toEqual([]);
    scheduler.checkInvariants();
    expect(scheduler.stats().blocks.cached).toBe(0);
    drain();
    expect(outputs.get('one')).toEqual(reference(10_000));
    expect(outputs.get('two')).toEqual(reference(20_000));
    // The shared prefix once, the other tokens of each request, and the remaining decodes.
    expect(runner.tokensComputed - before).toBe(99 * 16 + 2 * 17 + 2 * 2);
  });
});

test('blocks that are reported invalid while a step is in flight are added to its invalid blocks', () => {
  const { scheduler, runner, apply } = warm();
  scheduler.add(short('one', prompt(10_000), 4));
  const plan = scheduler.plan()!;
  const [invalid] = blocksOf(plan, 'one', [7]);
  runner.overwrite(invalid!);
  expect(scheduler.invalidate([invalid!])).toEqual([]);
  expect(apply(plan)).toEqual([]);
  expect(shape(scheduler.plan()!)).toEqual([`one: ${block(7)} ${block(99)}`]);
});

test('a request waits again for tokens of another request that did not count', () => {
  const full = { kind: 'full', blockSize: 16 as TokenCount, layers: [0] } as const;
  const window = { kind: 'window', blockSize: 1 as TokenCount, window: 2 as TokenCount, layers: [1] } as const;
  const spec = { ...onePoolSpec(200), groups: [full, window] };
  const prompts = { one: [...range(14), 50], two: [...range(14), 60] };
  const { scheduler, apply, step, drain, outputs } = harness(
    200,
    { maxNumBatchedTokens: 14, longPrefillTokenThreshold: 7 },
    16,
    spec,
  );
  scheduler.add(short('one', prompts.one, 3));
  step();
  scheduler.add(short('two', prompts.two, 3));
  const plan = scheduler.plan()!;
  expect(shape(plan)).toEqual(['one: 7-14', 'two: 0-7']);
  // Request two has its own block in the full group, which is valid. But it reads the KV of tokens 7-14 of request one.
  apply(plan, blocksOf(plan, 'one', [0]));
  expect(shape(step())).toEqual(['one: 0-7']);
  drain();
  for (const id of ['one', 'two'] as const)
    expect(outputs.get(id)).toEqual(referenceOutput(short(id, prompts[id], 3), spec, 1000, 200).tokens);
});
