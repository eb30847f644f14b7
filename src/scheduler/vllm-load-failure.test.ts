import { describe, expect, test } from 'vitest';
import { connected, fillTruly } from '../../sim/connected.ts';
import { range, shape, short } from '../../sim/harness.ts';
import { referenceOutput } from '../../sim/reference.ts';

/**
 * vLLM's tests of failed loads (test_kv_load_failure_recovery, test_error_propagation, test_invalid_blocks_race_conditions),
 * with their names and numbers, and ours. Blocks of 16 tokens; prompts of 100 blocks, 99 of them outside, nothing in
 * common unless it is said.
 */
const prompt = (own: number, blocks = 100) => range(blocks * 16, own * 10_000);
const three = (world: ReturnType<typeof connected>, maxTokens = 4) => {
  world.connector.blocks = () => 99;
  for (const own of [1, 2, 3]) world.scheduler.add(short(`${own}`, prompt(own), maxTokens));
};
const counts = ({ scheduler }: ReturnType<typeof connected>) => {
  const { running, waiting, loading } = scheduler.stats();
  return { running, waiting, loading };
};

describe('test_async_load_failure', () => {
  /** vLLM keeps min(idx) * 16 tokens of request 2 and computes all behind: 1600, 800 and 32 rows. */
  test.each([
    [[0, 98], '2: 0-16 1568-1600', 32],
    [[50, 98], '2: 800-816 1568-1600', 32],
    [[98], '2: 1568-1600', 16],
  ])('invalid %j: just these blocks and the last block’s tokens', (failed, spans, recomputed) => {
    const world = connected(10_000);
    three(world);
    const first = world.step();
    expect(first.sequences).toEqual([]);
    expect(first.connectorMetadata?.loads.map(({ blocks }) => blocks.length)).toEqual([99, 99, 99]);
    expect(counts(world)).toEqual({ running: 0, waiting: 0, loading: 3 });
    world.step([...world.loads.values()].map((load) => (load.requestId === '2' ? { load, failed } : { load })));
    // It is known which blocks are missing, so request 2 goes on at once; vLLM waits for a step of its own. It asks once
    // more, for these blocks from another place.
    expect(shape(world.step())).toEqual(['1: 1584-1600', spans, '3: 1584-1600']);
    expect(world.connector.asked).toEqual(['1', '2', '3', '2']);
    expect(world.updates.map(({ stats }) => stats)).toMatchObject([
      { cachedTokens: 1584, externalTokens: 1584, recomputedTokens: 0 },
      { cachedTokens: 1584, externalTokens: 1584, recomputedTokens: recomputed, failedLoads: failed.length },
      { cachedTokens: 1584, externalTokens: 1584, recomputedTokens: 0 },
    ]);
  });
});

describe('test_async_progressive_load_failure', () => {
  test.each([[[0, 50, 98]], [[98, 50, 0]]])(
    'reported one by one %j: it waits for the end, then computes just these',
    (order) => {
      const world = connected(10_000);
      world.connector.blocks = () => 99;
      world.scheduler.add(short('1', prompt(1), 4));
      world.step();
      const load = world.loads.get('1')!;
      for (const failed of order) {
        world.step([{ load, failed: [failed], isDecided: false }]);
        expect(counts(world)).toEqual({ running: 0, waiting: 0, loading: 1 });
      }
      world.step([{ load }]);
      expect(shape(world.step())).toEqual(['1: 0-16 800-816 1568-1600']);
      expect(world.connector.asked).toEqual(['1', '1']);
    },
  );
});

describe('test_sync_load_failure', () => {
  test.each([
    [[0, 98], '2: 0-16 1568-1600'],
    [[50, 98], '2: 800-816 1568-1600'],
    [[98], '2: 1568-1600'],
  ])('invalid %j: the rows of that step are thrown away, the others’ are not', (failed, spans) => {
    const world = connected(10_000);
    world.connector.mode = 'sync';
    three(world, 1);
    const first = world.plan()!;
    expect(shape(first)).toEqual(['1: 1584-1600', '2: 1584-1600', '3: 1584-1600']);
    const said = world.apply(
      first,
      [...world.loads.values()].map((load) => (load.requestId === '2' ? { load, failed } : { load })),
    );
    // As in vLLM: the others end, request 2 alone is left. It asks once more, for these blocks from another place.
    expect(said.map(({ requestId, finish }) => [requestId, finish?.reason])).toEqual([
      ['1', 'length'],
      ['3', 'length'],
    ]);
    expect(world.connector.finished).toEqual(['1', '3']);
    expect(counts(world)).toEqual({ running: 1, waiting: 0, loading: 0 });
    // vLLM: all from the first bad block on, min(idx) * 16.
    expect(shape(world.step())).toEqual([spans]);
    expect(world.connector.asked).toEqual(['1', '2', '3', '2']);
  });

  test('in the next step decodes come first, and the repair is one of its prompts', () => {
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

  test('a load that is not there within the step is waited for', () => {
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
  ])('100 and 99, 50 in common, invalid %j', (failed, repair) => {
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
    fillTruly(world, load, one, ({ index }) => failed.includes(index));
    expect(world.apply(plan, [{ load, failed }])).toEqual([]);
    expect(counts(world)).toEqual({ running: 2, waiting: 0, loading: 0 });
    // vLLM: request 1 from min(idx) * 16 on, request 2 from 50 * 16 on, as if what request 1 is still to refill were whole.
    // Here request 2 comes behind the rows that refill it, in the same step because all of them fit.
    expect(shape(world.step())).toEqual([repair, '2: 800-1600']);
    while (world.scheduler.hasWork()) world.step();
    for (const request of [one, two]) {
      const text = world.updates.flatMap(({ requestId, newTokens }) => (requestId === request.id ? newTokens : []));
      const { tokens } = referenceOutput(request, world.runner.kvCacheSpec, world.runner.vocabSize, 10_000);
      expect(text.map(({ token }) => token)).toEqual(tokens);
    }
  });
});

describe('test_async_recompute (test_invalid_blocks_correctness)', () => {
  test('nothing is found by its hash before it has arrived; who wants it meanwhile shares the load', () => {
    const world = connected(10_000);
    world.connector.blocks = () => 99;
    world.scheduler.add(short('1', prompt(1), 4));
    world.step();
    world.scheduler.add(short('2', prompt(1), 4));
    world.step();
    // vLLM loads it twice, or makes the second one ask again and again (issue 44882).
    expect([...world.loads.keys()]).toEqual(['1']);
    expect(world.scheduler.stats()).toMatchObject({ loading: 2, blocks: { cached: 0, referenced: 100 } });
    world.step([{ load: world.loads.get('1')!, failed: [50] }]);
    expect(shape(world.step())).toEqual(['1: 800-816 1584-1600', '2: 1599-1600']);
  });

  test('when the one that ordered it goes, the other inherits the load', () => {
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
  test.each(['sync', 'async'] as const)('policy fail, %s, 50 of 99: one output with reason error', (mode) => {
    const world = connected(10_000, { kvLoadFailurePolicy: 'fail' });
    world.connector.mode = mode;
    world.connector.blocks = () => 99;
    world.scheduler.add(short('1', prompt(1), 4));
    const first = world.plan()!;
    world.apply(first, [{ load: world.loads.get('1')!, failed: [50] }]);
    expect(world.updates).toMatchObject([{ requestId: '1', newTokens: [], finish: { reason: 'error' } }]);
    expect(world.scheduler.stats()).toMatchObject({ running: 0, waiting: 0, loading: 0, blocks: { referenced: 0 } });
    expect(world.scheduler.hasWork()).toBe(false);
    expect(world.connector.finished).toEqual(['1']);
  });
});

describe('test_invalid_blocks_race_conditions', () => {
  test('policy fail while I/O goes on: the request ends at once, its pages are kept until it is over', () => {
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

  test('abort while loading: the load is cancelled; its end and an echo of it harm nobody', () => {
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
    // Twice in the report: that it is decided, and that it is drained.
    expect(world.scheduler.stats().transfers.ignored).toBe(2);
  });
});
