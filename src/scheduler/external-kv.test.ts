import { describe, expect, test } from 'vitest';
import { connected } from '../../sim/connected.ts';
import { range, shape, short } from '../../sim/harness.ts';

/**
 * vLLM's tests of loads that run beside the steps (tests/v1/kv_connector/unit, state of September 2026), with their names and
 * numbers, and ours. Blocks of 16 tokens; prompts of 100 blocks, 99 of them outside, nothing in common.
 */
const prompt = (own: number, blocks = 100) => range(blocks * 16, own * 10_000);
const three = (world: ReturnType<typeof connected>) => {
  world.connector.blocks = () => 99;
  for (const own of [1, 2, 3]) world.scheduler.add(short(`${own}`, prompt(own), 4));
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
    // It is known which blocks are missing, so request 2 goes on at once; vLLM waits for a step of its own.
    expect(shape(world.step())).toEqual(['1: 1584-1600', spans, '3: 1584-1600']);
    expect(world.connector.asked).toEqual(['1', '2', '3']);
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
      expect(world.connector.asked).toEqual(['1']);
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
    three(world);
    const first = world.plan()!;
    expect(shape(first)).toEqual(['1: 1584-1600', '2: 1584-1600', '3: 1584-1600']);
    const said = world.apply(
      first,
      [...world.loads.values()].map((load) => (load.requestId === '2' ? { load, failed } : { load })),
    );
    expect(said.map(({ requestId }) => requestId)).toEqual(['1', '3']);
    // Decodes come first.
    expect(shape(world.step())).toEqual(['1: 1600-1601', '3: 1600-1601', spans]);
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
    world.step([{ load, failed: [50, 51], isDrained: false, isPageBusy: true }]);
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

describe('deadlines', () => {
  test('a worker that never reports: what it was to load is computed, in other pages', () => {
    const world = connected(10_000, {}, 16, { loadTimeoutMs: () => 1000 });
    world.connector.blocks = () => 99;
    world.scheduler.add(short('1', prompt(1), 4));
    world.step();
    const pages = new Set(world.loads.get('1')!.blocks.map(({ page }) => page));
    world.clock.nowMs = 5999;
    expect(world.step().sequences).toEqual([]);
    expect(world.scheduler.nextWakeMs()).toBe(6000);
    world.clock.nowMs = 6000;
    world.step();
    const next = world.step();
    expect(shape(next)).toEqual(['1: 0-1600']);
    expect(
      [...next.sequences[0]!.blockTables[0]!.ids.slice(0, 100)].filter((page) => pages.has(page as never)),
    ).toEqual([]);
    expect(world.scheduler.stats().transfers.open).toBe(1);
  });

  test('"ask later" lets others pass, and is believed until its first deadline', () => {
    const world = connected(10_000, { maxNumSeqs: 1 });
    world.connector.askLaterUntilMs = 500;
    world.scheduler.add(short('1', prompt(1, 2), 1));
    expect(world.plan()).toBeUndefined();
    world.connector.askLaterUntilMs = undefined;
    world.scheduler.add(short('2', prompt(2, 2), 1));
    expect(shape(world.plan()!)).toEqual(['2: 0-32']);
    const { scheduler } = world;
    expect(scheduler.stats().waiting).toBe(1);
    expect(scheduler.nextWakeMs()).toBe(500);
  });

  test('a connector that never knows costs its deadline, once', () => {
    const world = connected(10_000);
    world.connector.askLaterUntilMs = 500;
    world.scheduler.add(short('1', prompt(1, 2), 1));
    expect(world.plan()).toBeUndefined();
    world.connector.askLaterUntilMs = 900;
    world.scheduler.ringTransfers();
    world.clock.nowMs = 400;
    expect(world.plan()).toBeUndefined();
    world.clock.nowMs = 500;
    expect(shape(world.plan()!)).toEqual(['1: 0-32']);
  });
});

test('what a step has computed is offered to be saved, once, with the page that holds it', () => {
  const world = connected(100);
  world.scheduler.add(short('1', range(40), 1));
  const first = world.step();
  world.step();
  const [a, b] = first.sequences[0]!.blockTables[0]!.ids;
  expect(world.connector.newlyValid.map(({ group, index, page }) => [group, index, page])).toEqual([
    [0, 0, a],
    [0, 1, b],
  ]);
});

test('answers that nobody asked for are counted and ignored', () => {
  const world = connected(100);
  const { connector } = world;
  connector.getMatchedBlocks = ({ wanted }) => ({
    kind: 'found',
    mode: 'async',
    blocks: [{ ...wanted[0]!, index: 7, place: 'told' }],
  });
  world.scheduler.add(short('1', range(40), 1));
  expect(shape(world.step())).toEqual(['1: 0-40']);
});

test('with a connector the time must be said', () => {
  expect(() => connected(10).scheduler.plan()).toThrow('what time it is');
});
