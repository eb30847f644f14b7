import { describe, expect, test } from 'vitest';
import { connected, fillLoad } from '../connected.ts';
import { range, shape, short } from '../harness.ts';
import { referenceOutput } from '../reference.ts';

/**
 * vLLM's tests of failed loads (test_kv_load_failure_recovery, test_error_propagation,
 * test_invalid_blocks_race_conditions) with their names and numbers, and both outcomes. Blocks have 16 tokens. Prompts
 * have 100 blocks, 99 of them in the store, and share no prefix unless a test says so.
 */
const prompt = (own: number, blocks = 100) => range(blocks * 16, own * 10_000);
const three = (world: ReturnType<typeof connected>, maxTokens = 4) => {
  world.connector.blocks = () => 99;
  for (const own of [1, 2, 3]) world.scheduler.add(short(`${own}`, prompt(own), maxTokens));
};
const counts = ({ scheduler }: ReturnType<typeof connected>) => {
  const { running, waiting, waitingForRemoteKv } = scheduler.stats();
  return { running, waiting, waitingForRemoteKv };
};

describe('test_async_load_failure', () => {
  /**
   * vLLM keeps min(idx) * 16 tokens of request 2 and computes all later tokens: 800 and 32. If it keeps none, it releases the blocks
   * and looks for all of them again.
   */
  test.each([
    [[0, 98], '2: 0-16 1568-1600', 32],
    [[50, 98], '2: 800-816 1568-1600', 32],
    [[98], '2: 1568-1600', 16],
  ])('invalid %j: only these blocks and the last block are computed', (failed, spans, recomputed) => {
    const world = connected(10_000);
    three(world);
    const first = world.step();
    expect(first.sequences).toEqual([]);
    expect(first.connectorMetadata?.loads.map(({ blocks }) => blocks.length)).toEqual([99, 99, 99]);
    expect(counts(world)).toEqual({ running: 0, waiting: 0, waitingForRemoteKv: 3 });
    world.step([...world.loads.values()].map((load) => (load.requestId === '2' ? { load, failed } : { load })));
    // The load is decided, so request 2 continues in the next step; in vLLM's test it waits for the end of its load. Request 2
    // asks again for the failed blocks, because another store may have them.
    expect(shape(world.step())).toEqual(['1: 1584-1600', spans, '3: 1584-1600']);
    expect(world.connector.asked).toEqual(['1', '2', '3', '2']);
    expect(world.connector.wanted[3]).toEqual(failed);
    expect(world.updates.map(({ stats }) => stats)).toMatchObject([
      { cachedTokens: 1584, externalTokens: 1584, recomputedTokens: 0 },
      { cachedTokens: 1584, externalTokens: 1584, recomputedTokens: recomputed, failedLoads: failed.length },
      { cachedTokens: 1584, externalTokens: 1584, recomputedTokens: 0 },
    ]);
  });
});

describe('test_failed_receive_completion_honors_failure_policy', () => {
  /** A prompt of 3 blocks, of which 2 load. The load fails as a whole. */
  function failedLoad(kvLoadFailurePolicy: 'fail' | 'recompute') {
    const world = connected(10_000, { kvLoadFailurePolicy });
    world.connector.blocks = () => 2;
    world.scheduler.add(short('1', prompt(1, 3), 4));
    world.step();
    expect(counts(world)).toEqual({ running: 0, waiting: 0, waitingForRemoteKv: 1 });
    world.connector.blocks = () => 0;
    world.step([{ load: world.loads.get('1')!, hasFailed: true }]);
    return world;
  }

  test('fail: the request ends with an error, and its blocks are released', () => {
    const { updates, scheduler } = failedLoad('fail');
    expect(updates).toMatchObject([{ requestId: '1', newTokens: [], finish: { reason: 'error' } }]);
    expect(scheduler.stats().blocks).toMatchObject({ referenced: 0, cached: 0 });
    expect(scheduler.hasWork()).toBe(false);
  });

  test('recompute: the request asks again and is computed from its first token in the next step', () => {
    const world = failedLoad('recompute');
    expect(world.updates).toEqual([]);
    expect(shape(world.step())).toEqual(['1: 0-48']);
    // Of the blocks that failed. vLLM asks for the whole prompt.
    expect(world.connector.wanted[1]).toEqual([0, 1]);
  });
});

describe('test_async_progressive_load_failure', () => {
  test.each([[[0, 50, 98]], [[98, 50, 0]]])(
    'failures are reported one by one %j: the request waits until the load is decided, then computes only these blocks',
    (order) => {
      const world = connected(10_000);
      world.connector.blocks = () => 99;
      world.scheduler.add(short('1', prompt(1), 4));
      world.step();
      const load = world.loads.get('1')!;
      for (const failed of order) {
        world.step([{ load, failed: [failed], isDecided: false }]);
        expect(counts(world)).toEqual({ running: 0, waiting: 0, waitingForRemoteKv: 1 });
      }
      world.step([{ load }]);
      expect(shape(world.step())).toEqual(['1: 0-16 800-816 1568-1600']);
      expect(world.connector.asked).toEqual(['1', '1']);
      expect(world.connector.wanted[1]).toEqual([0, 50, 98]);
    },
  );
});

describe('test_sync_load_failure', () => {
  test.each([
    [[0, 98], '2: 0-16 1568-1600'],
    [[50, 98], '2: 800-816 1568-1600'],
    [[98], '2: 1568-1600'],
  ])('invalid %j: the tokens of request 2 do not count in this step, those of other requests do', (failed, spans) => {
    const world = connected(10_000);
    world.connector.mode = 'sync';
    three(world, 1);
    const first = world.plan()!;
    expect(shape(first)).toEqual(['1: 1584-1600', '2: 1584-1600', '3: 1584-1600']);
    const updates = world.apply(
      first,
      [...world.loads.values()].map((load) => (load.requestId === '2' ? { load, failed } : { load })),
    );
    // As in vLLM, the others end. Request 2 asks again for the failed blocks, because another store may have them.
    expect(updates.map(({ requestId, finish }) => [requestId, finish?.reason])).toEqual([
      ['1', 'length'],
      ['3', 'length'],
    ]);
    expect(world.connector.finished).toEqual(['1', '3']);
    expect(counts(world)).toEqual({ running: 1, waiting: 0, waitingForRemoteKv: 0 });
    // vLLM computes all tokens from min(idx) * 16 on.
    expect(shape(world.step())).toEqual([spans]);
    expect(world.connector.asked).toEqual(['1', '2', '3', '2']);
    expect(world.connector.wanted[3]).toEqual(failed);
  });

  test('in the next step decodes come first, and the failed blocks are computed as a prompt', () => {
    const world = connected(10_000);
    world.connector.mode = 'sync';
    three(world);
    const plan = world.plan()!;
    const reports = [...world.loads.values()].map((load) =>
      load.requestId === '2' ? { load, failed: [98] } : { load },
    );
    world.apply(plan, reports);
    expect(shape(world.step())).toEqual(['1: 1600-1601', '3: 1600-1601', '2: 1568-1600']);
  });

  test('a request waits for a sync load that did not end within its step', () => {
    const world = connected(10_000);
    world.connector.mode = 'sync';
    world.connector.blocks = () => 99;
    world.scheduler.add(short('1', prompt(1), 4));
    expect(shape(world.step())).toEqual(['1: 1584-1600']);
    expect(world.updates).toEqual([]);
    expect(world.step().sequences).toEqual([]);
    world.step([{ load: world.loads.get('1')! }]);
    expect(shape(world.step())).toEqual(['1: 1584-1600']);
  });
});

describe('test_sync_load_failure_with_shared_blocks', () => {
  test.each([
    [[0, 49], '1: 0-16 784-800 1584-1600'],
    [[25, 49], '1: 400-416 784-800 1584-1600'],
    [[49], '1: 784-800 1584-1600'],
  ])('100 blocks, 99 in the store, 50 shared, invalid %j', (failed, repair) => {
    const world = connected(10_000);
    world.connector.mode = 'sync';
    world.connector.blocks = ({ id }) => (id === '1' ? 99 : 0);
    const one = short('1', prompt(1), 4);
    const two = short('2', [...prompt(1).slice(0, 800), ...range(800, 77_777)], 4);
    world.scheduler.add(one);
    world.scheduler.add(two);
    const plan = world.plan()!;
    expect(shape(plan)).toEqual(['1: 1584-1600', '2: 800-1600']);
    const load = world.loads.get('1')!;
    fillLoad(world, load, one, ({ index }) => failed.includes(index));
    expect(world.apply(plan, [{ load, failed }])).toEqual([]);
    expect(counts(world)).toEqual({ running: 2, waiting: 0, waitingForRemoteKv: 0 });
    // vLLM: request 1 from min(idx) * 16 on, request 2 from 50 * 16 on, although request 1 has not filled the blocks
    // yet. Here request 2 comes after the tokens that fill them, in the same step because the budget is large enough.
    expect(shape(world.step())).toEqual([repair, '2: 800-1600']);
    while (world.scheduler.hasWork()) world.step();
    for (const request of [one, two]) {
      const text = world.updates.flatMap(({ requestId, newTokens }) => (requestId === request.id ? newTokens : []));
      const { tokens } = referenceOutput(request, world.runner.kvCacheSpec, world.runner.vocabSize, 10_000);
      expect(text.map(({ token }) => token)).toEqual(tokens);
    }
  });
});

describe('test_sync_load_failure_with_shared_blocks: more than one step', () => {
  const textOf = ({ updates }: ReturnType<typeof connected>, { id }: ReturnType<typeof short>) =>
    updates.flatMap(({ requestId, newTokens }) => (requestId === id ? newTokens.map(({ token }) => token) : []));
  const referenceOf = ({ runner }: ReturnType<typeof connected>, request: ReturnType<typeof short>) =>
    referenceOutput(request, runner.kvCacheSpec, runner.vocabSize, 10_000).tokens;

  /** vLLM's tests have a budget of 64 tokens, which its request 1 uses alone until it has computed all of its tokens. */
  test.each([3, 16, 64, 900])('a budget of %d tokens: the invalid blocks are computed once', (maxNumBatchedTokens) => {
    const world = connected(300, { maxNumBatchedTokens });
    world.connector.mode = 'sync';
    world.connector.blocks = ({ id }) => (id === '1' ? 99 : 0);
    const one = short('1', prompt(1), 4);
    const two = short('2', [...prompt(1).slice(0, 800), ...range(800, 77_777)], 4);
    for (const request of [one, two]) world.scheduler.add(request);
    const plan = world.plan()!;
    const load = world.loads.get('1')!;
    fillLoad(world, load, one, ({ index }) => index === 25 || index === 49);
    world.apply(plan, [{ load, failed: [25, 49] }]);
    let computed = 0;
    while (world.scheduler.hasWork())
      for (const { spans } of world.step().sequences)
        for (const { start, end } of spans) computed += Math.max(0, Math.min(end, 800) - start);
    expect(computed).toBe(2 * 16);
    for (const request of [one, two]) expect(textOf(world, request)).toEqual(referenceOf(world, request));
  });

  test('request 1 is preempted before it has computed its invalid blocks, which vLLM then finds in the prefix cache', () => {
    const world = connected(102, { longPrefillTokenThreshold: 4 });
    world.connector.mode = 'sync';
    world.connector.blocks = ({ id }) => (id === '1' ? 99 : 0);
    const requests = [short('other', range(4, 77_777), 60), short('1', prompt(1), 4), short('later', prompt(1), 4)];
    world.scheduler.add(requests[0]!);
    world.step();
    world.scheduler.add(requests[1]!);
    const plan = world.plan()!;
    const load = world.loads.get('1')!;
    fillLoad(world, load, requests[1]!, ({ index }) => index < 40);
    world.apply(plan, [{ load, failed: range(40) }]);
    world.scheduler.add(requests[2]!);
    while (world.scheduler.stats().preemptions === 0) world.step();
    expect(textOf(world, requests[1]!)).toEqual([]);
    while (world.scheduler.hasWork()) world.step();
    for (const request of requests) expect(textOf(world, request)).toEqual(referenceOf(world, request));
  });
});

describe('test_async_recompute (test_invalid_blocks_correctness)', () => {
  test('no block is cached before it has arrived, and another request with the same prompt shares the load', () => {
    const world = connected(10_000);
    world.connector.blocks = () => 99;
    world.scheduler.add(short('1', prompt(1), 4));
    world.step();
    world.scheduler.add(short('2', prompt(1), 4));
    world.step();
    // vLLM loads the blocks twice, or the second request asks in every step (issue 44882).
    expect([...world.loads.keys()]).toEqual(['1']);
    expect(world.scheduler.stats()).toMatchObject({ waitingForRemoteKv: 2, blocks: { referenced: 100 } });
    expect(world.scheduler.inspector.cachedKeys().size).toBe(0);
    world.step([{ load: world.loads.get('1')!, failed: [50] }]);
    expect(shape(world.step())).toEqual(['1: 800-816 1584-1600', '2: 1599-1600']);
  });

  test('if the request that started the load is aborted, the other request becomes the owner', () => {
    const world = connected(10_000);
    world.connector.blocks = () => 99;
    for (const id of ['1', '2']) world.scheduler.add(short(id, prompt(1), 4));
    world.step();
    world.scheduler.abort('1' as never);
    const next = world.step([{ load: world.loads.get('1')! }]);
    expect(next.connectorMetadata?.cancelled).toEqual([]);
    expect(shape(world.step())).toEqual(['2: 1584-1600']);
  });
});

describe('test_error_propagation', () => {
  test.each(['sync', 'async'] as const)('policy fail, %s, 50 of 99: one update with reason error', (mode) => {
    const world = connected(10_000, { kvLoadFailurePolicy: 'fail' });
    world.connector.mode = mode;
    world.connector.blocks = () => 99;
    world.scheduler.add(short('1', prompt(1), 4));
    const first = world.plan()!;
    world.apply(first, [{ load: world.loads.get('1')!, failed: [50] }]);
    expect(world.updates).toMatchObject([{ requestId: '1', newTokens: [], finish: { reason: 'error' } }]);
    expect(world.scheduler.stats()).toMatchObject({
      running: 0,
      waiting: 0,
      waitingForRemoteKv: 0,
      blocks: { referenced: 0 },
    });
    expect(world.scheduler.hasWork()).toBe(false);
    expect(world.connector.finished).toEqual(['1']);
  });
});

describe('the policy `fail` with requests that share a load', () => {
  test('counts the request that ends, and those that go on', () => {
    const world = connected(10_000, { kvLoadFailurePolicy: 'fail' });
    world.connector.blocks = () => 99;
    const requests = ['1', '2', '3'].map((id) => short(id, prompt(1), 4));
    for (const request of requests) world.scheduler.add(request);
    world.step();
    const load = world.loads.get('1')!;
    fillLoad(world, load, requests[0]!, ({ index }) => index === 50);
    world.step([{ load, failed: [50] }]);
    expect(world.updates).toMatchObject([{ requestId: '1', finish: { reason: 'error' } }]);
    expect(world.scheduler.stats().transfers).toMatchObject({
      failedRequests: 1,
      recoveries: 2,
      recoveredTokens: 2 * 16,
      affectedTokens: 3 * 16,
    });
    // One of the others loads the block itself.
    world.step();
    const again = world.loads.get('2')!;
    fillLoad(world, again, requests[1]!);
    world.step([{ load: again }]);
    while (world.scheduler.hasWork()) world.step();
    const ends = world.updates.flatMap(({ requestId, finish }) =>
      finish === undefined ? [] : [[requestId, finish.reason]],
    );
    expect(ends).toEqual([
      ['1', 'error'],
      ['2', 'length'],
      ['3', 'length'],
    ]);
  });
});

describe('test_invalid_blocks_race_conditions', () => {
  test('policy fail while I/O continues: the request ends at once, and busy blocks stay pinned until the load is drained', () => {
    const world = connected(10_000, { kvLoadFailurePolicy: 'fail' });
    world.connector.blocks = () => 99;
    world.scheduler.add(short('1', prompt(1), 4));
    world.step();
    const load = world.loads.get('1')!;
    world.step([{ load, failed: [50, 51], isDrained: false, isBlockBusy: true }]);
    expect(world.updates[0]?.finish?.reason).toBe('error');
    expect(world.scheduler.stats()).toMatchObject({ blocks: { referenced: 2 }, transfers: { open: 1 } });
    world.step([{ load, isDecided: true }]);
    expect(world.scheduler.stats()).toMatchObject({ blocks: { referenced: 0 }, transfers: { open: 0, ignored: 1 } });
  });

  test('abort during a load: the load is cancelled, and a duplicate report is ignored', () => {
    const world = connected(10_000);
    world.connector.blocks = () => 99;
    world.scheduler.add(short('1', prompt(1), 4));
    world.step();
    const load = world.loads.get('1')!;
    world.scheduler.abort('1' as never);
    expect(world.scheduler.stats().blocks.referenced).toBe(99);
    expect(world.step([{ load }]).connectorMetadata?.cancelled).toEqual([load.transfer]);
    expect(world.scheduler.stats()).toMatchObject({ blocks: { referenced: 0, cached: 0 }, transfers: { open: 0 } });
    world.scheduler.add(short('2', prompt(2, 1), 4));
    world.step([{ load }]);
    // The report has two parts: the load is decided, and it is drained.
    expect(world.scheduler.stats().transfers.ignored).toBe(2);
  });
});
