import { describe, expect, test } from 'vitest';
import type { LoadMode } from '../../src/connector/connector.ts';
import { NULL_BLOCK, type TokenCount } from '../../src/core/ids.ts';
import type { KvGroupSpec } from '../../src/core/kv-spec.ts';
import type { SchedulerOptions } from '../../src/scheduler/contract.ts';
import { connected, fillLoad } from '../connected.ts';
import { range, shape, short } from '../harness.ts';
import { referenceOutput } from '../reference.ts';

/**
 * vLLM's tests of failed loads with several KV groups, with their names and numbers, and both outcomes. In vLLM a
 * report of invalid blocks stops the engine; a connector must fail the whole request, which is computed from its first
 * token. The pull requests preempt the request and compute all of its tokens.
 *
 * Here a failure names its transfer and its block, and a block belongs to one group. The planner returns the tokens to
 * compute. Valid KV is not computed again, except that a state group computes from its nearest checkpoint, or from 0.
 */
const full: KvGroupSpec = { kind: 'full', blockSize: 16 as TokenCount, layers: [0] };
const state: KvGroupSpec = { kind: 'state', blockSize: 16 as TokenCount, layers: [1] };
const sliding: KvGroupSpec = {
  kind: 'window',
  blockSize: 32 as TokenCount,
  window: 128 as TokenCount,
  layers: [1],
};
const prompt = (own: number) => range(1600, own * 10_000);

type World = ReturnType<typeof connected>;
function open(groups: readonly KvGroupSpec[], mode: LoadMode, options: Partial<SchedulerOptions> = {}): World {
  const world = connected(1000, options, {}, groups);
  world.connector.mode = mode;
  return world;
}

/** The load of one block of one request fails; all others succeed. Returns the updates of this step. */
function failAt(world: World, requests: readonly ReturnType<typeof short>[], id: string, group: number, index: number) {
  const plan = world.plan()!;
  const failing = (requestId: string) => requestId === id;
  for (const load of world.loads.values()) {
    const request = requests.find((other) => other.id === load.requestId)!;
    fillLoad(world, load, request, (block) => failing(request.id) && block.group === group && block.index === index);
  }
  const reports = [...world.loads.values()].map((load) =>
    failing(load.requestId) ? { load, failed: [index], failedGroup: group } : { load },
  );
  return world.apply(plan, reports);
}

function textOf({ updates }: World, id: string): number[] {
  return updates
    .filter(({ requestId }) => requestId === id)
    .flatMap(({ newTokens }) => newTokens.map(({ token }) => token));
}
const referenceOf = ({ runner }: World, request: ReturnType<typeof short>) =>
  referenceOutput(request, runner.kvCacheSpec, runner.vocabSize, 10_000).tokens;
function finish(world: World): void {
  while (world.scheduler.stats().running + world.scheduler.stats().waitingForRemoteKv > 0) world.step();
}

/** After a failure: the store loads what the request asks for. Returns the plan that computes, and the places that it loaded. */
function reload(world: World, request: ReturnType<typeof short>) {
  const before = world.loads.get(request.id);
  const plan = world.plan()!;
  const load = world.loads.get(request.id)!;
  if (load === before) {
    world.apply(plan);
    return { plan, places: [] };
  }
  fillLoad(world, load, request);
  world.apply(plan, [{ load }]);
  const places = load.blocks.map(({ group, index }) => `${group}/${index}`);
  return { plan: load.mode === 'sync' ? plan : world.step(), places };
}

/**
 * Of the states in the store only the last is loaded. With 51 states, loading full blocks after the last state is
 * useless. After the failure, the state before the failed block is loaded too. vLLM computes 1600 tokens in all of these
 * cases. `alone`: the tokens if the store has lost all other blocks.
 */
const cases = [
  { where: 'full', group: 0, states: 99, repair: '800-816 1584-1600', alone: '0-816 1584-1600' },
  { where: 'full', group: 0, states: 51, repair: '800-1600', alone: '0-1600' },
  { where: 'state', group: 1, states: 51, repair: '800-1600', alone: '0-1600' },
] as const;

describe('test_hybrid_kv_load_failure_recovery', () => {
  describe.each(['sync', 'async'] as const)('%s', (mode) => {
    describe.each(cases)('100 and 99, index 50 of the $where group fails, $states states', (which) => {
      test.each([
        { what: 'the store has the other blocks', hasBlocks: true },
        { what: 'the store has no block any more', hasBlocks: false },
      ])('$what', ({ hasBlocks }) => {
        const world = open([full, state], mode);
        const stored = (_: unknown, group: number): number => (group === 0 ? 99 : which.states);
        world.connector.blocks = stored;
        const requests = [short('1', prompt(1), 3), short('2', prompt(2), 3)];
        for (const request of requests) world.scheduler.add(request);
        const updates = failAt(world, requests, '1', which.group, 50);
        // Its sample does not count, and the other request is not affected. (vLLM preempts it; here it keeps its
        // blocks.)
        expect(updates.map(({ requestId }) => requestId)).toEqual(mode === 'sync' ? ['2'] : []);
        expect(world.scheduler.stats()).toMatchObject({ preemptions: 0, waiting: 0 });
        if (!hasBlocks) world.connector.blocks = () => 0;
        const { plan, places } = reload(world, requests[0]!);
        expect(places).toEqual(hasBlocks ? ['1/49'] : []);
        const repair = hasBlocks ? which.repair : which.alone;
        expect(shape(plan).find((line) => line.startsWith('1'))).toBe(`1: ${repair}`);
        finish(world);
        for (const request of requests) expect(textOf(world, request.id)).toEqual(referenceOf(world, request));
      });
    });

    test('policy fail: one update with reason error, its blocks are released, and the other request continues', () => {
      const world = open([full, state], mode, { kvLoadFailurePolicy: 'fail' });
      world.connector.blocks = () => 99;
      const requests = [short('1', prompt(1), 3), short('2', prompt(2), 3)];
      for (const request of requests) world.scheduler.add(request);
      const updates = failAt(world, requests, '1', 0, 50);
      expect(updates[0]).toMatchObject({ requestId: '1', newTokens: [], finish: { reason: 'error' } });
      expect(world.scheduler.stats()).toMatchObject({ waiting: 0, running: mode === 'sync' ? 1 : 0 });
      finish(world);
      expect(textOf(world, '2')).toEqual(referenceOf(world, requests[1]!));
      expect(world.scheduler.stats().blocks.referenced).toBe(0);
      expect(world.updates.filter(({ requestId }) => requestId === '1')).toHaveLength(1);
    });
  });
});

describe('multi-group fail (test_invalid_blocks_correctness, pull request 35223)', () => {
  /**
   * A full group with blocks of 16, a window of 128 with blocks of 32: 75 blocks are 1200 tokens, or 37 window blocks.
   */
  const found = (_: unknown, group: number): number => (group === 0 ? 75 : 37);

  test('1000 blocks, 75 of 100 in the store, the second block of the last group fails: the request ends and its blocks are released', () => {
    const world = open([full, sliding], 'sync', { kvLoadFailurePolicy: 'fail' });
    world.connector.blocks = found;
    const request = short('1', prompt(1), 3);
    world.scheduler.add(request);
    const updates = failAt(world, [request], '1', 1, 34);
    // Blocks that the window does not read are not loaded.
    const indices = world.loads.get('1')!.blocks.filter(({ group }) => group === 1);
    expect(indices.map(({ index }) => index)).toEqual([33, 34, 35, 36]);
    expect(updates).toMatchObject([{ requestId: '1', finish: { reason: 'error' } }]);
    expect(world.scheduler.stats()).toMatchObject({ running: 0, waiting: 0, blocks: { referenced: 0 } });
    expect(world.scheduler.hasWork()).toBe(false);
  });

  test.each(['sync', 'async'] as const)(
    '%s, policy recompute: the output is the same, and only tokens that windows need are computed',
    (mode) => {
      const world = open([full, sliding], mode);
      world.connector.blocks = found;
      const request = short('1', prompt(1), 3);
      world.scheduler.add(request);
      failAt(world, [request], '1', 1, 34);
      // Block 34 is [1088, 1120). Its tokens read the window before it, whose blocks were not needed before the failure.
      // The other loaded blocks are used.
      const { plan, places } = reload(world, request);
      expect(places).toEqual(['1/30', '1/31', '1/32']);
      expect(shape(plan)).toEqual(['1: 1088-1120 1184-1600']);
      finish(world);
      expect(textOf(world, '1')).toEqual(referenceOf(world, request));
    },
  );
});

test('a store that has lost the window before a failed block: the tokens of this window are computed, and so on down to 0', () => {
  const world = open([full, sliding], 'async');
  world.connector.blocks = (_, group) => (group === 0 ? 75 : 37);
  const request = short('1', prompt(1), 3);
  world.scheduler.add(request);
  failAt(world, [request], '1', 1, 34);
  world.connector.blocks = () => 0;
  const { plan, places } = reload(world, request);
  expect(places).toEqual([]);
  // The loaded blocks [1056, 1088) and [1120, 1184) are used.
  expect(shape(plan)).toEqual(['1: 0-1056 1088-1120 1184-1600']);
  finish(world);
  expect(textOf(world, '1')).toEqual(referenceOf(world, request));
});

describe('block_level_load_failure_fails_closed_with_multiple_groups', () => {
  test('a block that is reported by its id: vLLM raises an error; here it belongs to one group and is computed', () => {
    const world = open([full, sliding], 'sync');
    const request = short('1', range(40), 3);
    world.scheduler.add(request);
    const first = world.step();
    const block = first.sequences[0]!.blockTables[0]!.ids[0]!;
    world.runner.overwrite(block);
    const plan = world.plan()!;
    const result = { ...world.runner.execute(plan), invalidBlocks: [block as never] };
    expect(world.scheduler.apply(plan, result, 0)).toEqual([]);
    // The block of the full group is invalid. In the window group these tokens are valid, and their KV is not written.
    const repair = world.step();
    expect(shape(repair)).toEqual(['1: 0-16 40-41']);
    const [ofFull, ofWindow] = repair.sequences[0]!.writeTables!;
    expect([ofFull!.ids[0], ofWindow!.ids[0]]).toEqual([block, NULL_BLOCK]);
    finish(world);
    expect(textOf(world, '1')).toEqual(referenceOf(world, request));
  });
});

describe('two groups', () => {
  const group = (kind: 'full' | 'window', blockSize: number, layer: number, window = 0): KvGroupSpec => {
    const common = { blockSize: blockSize as TokenCount, layers: [layer] };
    return kind === 'full' ? { kind, ...common } : { kind, ...common, window: window as TokenCount };
  };
  const placesOf = ({ loads }: World, id: string) =>
    loads.get(id)!.blocks.map(({ group, index }) => `${group}/${index}`);
  /** The blocks that became valid since the last call, as the connector was told. */
  const newlyValid = ({ connector }: World) =>
    connector.newlyValid.splice(0).map(({ group, index }) => `${group}/${index}`);

  test('two_groups_full_and_sliding_window: blocks of 4, window 8; of the window group, only the last two blocks load', () => {
    const world = open([group('full', 4, 0), group('window', 4, 1, 8)], 'async');
    world.connector.blocks = () => 4;
    const request = short('1', range(13), 3);
    world.scheduler.add(request);
    world.step();
    expect(placesOf(world, '1')).toEqual(['0/0', '0/1', '0/2', '1/1', '1/2']);
    fillLoad(world, world.loads.get('1')!, request);
    world.step([{ load: world.loads.get('1')! }]);
    expect(shape(world.step())).toEqual(['1: 12-13']);
    finish(world);
    expect(textOf(world, '1')).toEqual(referenceOf(world, request));
    // Three blocks are in the pool, and the fourth loads.
    const longer = short('2', range(17), 3);
    world.scheduler.add(longer);
    world.step();
    expect(placesOf(world, '2')).toEqual(['0/3', '1/3']);
    fillLoad(world, world.loads.get('2')!, longer);
    world.step([{ load: world.loads.get('2')! }]);
    expect(shape(world.step())).toEqual(['2: 16-17']);
    finish(world);
    expect(textOf(world, '2')).toEqual(referenceOf(world, longer));
  });

  test('two_groups_different_block_sizes, 12 and 16: each group stores and loads blocks of its own size', () => {
    const world = open([group('full', 12, 0), group('full', 16, 1)], 'async');
    const request = short('1', range(25), 24);
    world.scheduler.add(request);
    const after: Record<number, string[]> = {};
    for (let tokens = 25; world.scheduler.hasWork(); tokens++) {
      world.step();
      const blocks = newlyValid(world);
      if (blocks.length > 0) after[tokens] = blocks;
    }
    // A step tells the connector about the blocks of the step before it. vLLM stores them one step later, too.
    expect(after).toEqual({ 26: ['0/0', '0/1', '1/0'], 33: ['1/1'], 37: ['0/2'], 49: ['0/3', '1/2'] });
    world.connector.blocks = () => 99;
    const other = short('2', range(48, 500), 3);
    world.scheduler.add(other);
    world.step();
    expect(placesOf(world, '2')).toEqual(['0/0', '0/1', '0/2', '0/3', '1/0', '1/1', '1/2']);
    fillLoad(world, world.loads.get('2')!, other);
    world.step([{ load: world.loads.get('2')! }]);
    expect(shape(world.step())).toEqual(['2: 47-48']);
    finish(world);
    expect(textOf(world, '2')).toEqual(referenceOf(world, other));
    // 48 tokens are in the pool. vLLM loads the same blocks.
    const longer = short('3', range(85, 500), 3);
    world.scheduler.add(longer);
    world.step();
    expect(placesOf(world, '3')).toEqual(['0/4', '0/5', '0/6', '1/3', '1/4']);
    fillLoad(world, world.loads.get('3')!, longer);
    world.step([{ load: world.loads.get('3')! }]);
    expect(shape(world.step())).toEqual(['3: 80-85']);
    finish(world);
    expect(textOf(world, '3')).toEqual(referenceOf(world, longer));
  });
});

describe('lookup tables, window: a window group loads the blocks that the computed tokens read', () => {
  /**
   * vLLM's TestSlidingWindowLookup: the stored blocks of so many, from 1 on, a window of so many blocks, and the end of the hit. vLLM
   * loads the window before this end and computes the tokens after it. Here blocks after a hole are loaded too.
   */
  test.each([
    { stored: [1, 2], of: 2, window: 2, vllm: 2, loads: [1, 2], computed: '32-33' },
    { stored: [], of: 3, window: 1, vllm: 0, loads: [], computed: '0-49' },
    { stored: [2, 3], of: 3, window: 2, vllm: 3, loads: [2, 3], computed: '48-49' },
    { stored: [2, 3], of: 4, window: 2, vllm: 3, loads: [2, 3], computed: '48-65' },
    { stored: [1, 2], of: 3, window: 3, vllm: 2, loads: [1, 2], computed: '32-49' },
    { stored: [2, 3], of: 3, window: 1, vllm: 3, loads: [3], computed: '48-49' },
    { stored: [2, 3, 5], of: 5, window: 2, vllm: 3, loads: [2, 3, 5], computed: '48-64 80-81' },
    { stored: [1, 2, 4, 5], of: 5, window: 2, vllm: 5, loads: [4, 5], computed: '80-81' },
    { stored: [1, 3, 4, 5], of: 5, window: 4, vllm: 1, loads: [1, 3, 4, 5], computed: '16-32 80-81' },
  ])(
    'blocks $stored of $of, window $window: $loads load, and $computed are computed (vLLM: a hit of $vllm blocks)',
    ({ stored, of, window, loads, computed }) => {
      const tokens = (16 * window + 1) as TokenCount;
      const world = open([{ kind: 'window', blockSize: 16 as TokenCount, window: tokens, layers: [0] }], 'async');
      const { connector } = world;
      connector.getMatchedBlocks = ({ wanted }) => ({
        kind: 'found',
        blocks: wanted
          .filter(({ index }) => stored.includes(index + 1))
          .map((block) => ({ ...block, place: connector.place(block) })),
        mode: 'async',
      });
      const request = short('1', range(16 * of + 1), 3);
      world.scheduler.add(request);
      const { plan, places } = reload(world, request);
      expect(places).toEqual(loads.map((block) => `0/${block - 1}`));
      expect(shape(plan)).toEqual([`1: ${computed}`]);
      finish(world);
      expect(textOf(world, '1')).toEqual(referenceOf(world, request));
    },
  );
});

/** vLLM's scheduler of the offloading connector stores the blocks of 16 tokens, and the partial tail: 12 tokens of attention and the state after 28. */
test('partial_tail: of 28 tokens, the blocks and the state after 16 are stored, and a later request computes the other 12', () => {
  const world = open([full, state], 'async');
  const first = short('first', range(28), 1);
  world.scheduler.add(first);
  finishAll(world);
  const stored = world.connector.newlyValid.map(({ group, index }) => `${group}: ${index}`);
  expect(stored.toSorted((a, b) => a.localeCompare(b))).toEqual(['0: 0', '1: 0']);
  const later = open([full, state], 'async');
  later.connector.blocks = () => 1;
  later.scheduler.add(first);
  const plan = later.plan()!;
  const load = later.loads.get('first')!;
  fillLoad(later, load, first);
  later.apply(plan, [{ load }]);
  expect(shape(later.step())).toEqual(['first: 16-28']);
  finishAll(later);
  expect(textOf(later, 'first')).toEqual(referenceOf(later, first));
});

function finishAll(world: World): void {
  while (world.scheduler.hasWork()) world.step();
}
