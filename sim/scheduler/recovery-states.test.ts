import { describe, expect, test } from 'vitest';
import type { LoadBlock, LoadJob } from '../../src/connector/connector.ts';
import { type BlockId, NULL_BLOCK, type TokenCount } from '../../src/core/ids.ts';
import { InvalidBlocks } from '../../src/core/invalid-blocks.ts';
import type { KvGroupSpec } from '../../src/core/kv-spec.ts';
import type { ScheduledStep } from '../../src/scheduler/contract.ts';
import { connected, fillLoad, type LoadReport } from '../connected.ts';
import { range, short } from '../harness.ts';
import { referenceOutput } from '../reference.ts';

/**
 * The running state at the end of a span, and the partial block of a window there, are kept until the next tokens count. If a
 * block on which these tokens depend turns out to be invalid, the request continues from there.
 */
const full: KvGroupSpec = { kind: 'full', blockSize: 16 as TokenCount, layers: [0] };
const stateOf = (blockSize: number): KvGroupSpec => ({
  kind: 'state',
  blockSize: blockSize as TokenCount,
  layers: [1],
});
const windowOf = (blockSize: number, window: number): KvGroupSpec => ({
  kind: 'window',
  blockSize: blockSize as TokenCount,
  window: window as TokenCount,
  layers: [1],
});
const request = short('1', range(1600), 3);

/** Group and index of a block. */
type Place = readonly [group: number, index: number];
const has = (places: readonly Place[], block: { group: number; index: number }): boolean =>
  places.some(([group, index]) => block.group === group && block.index === index);

interface Store {
  /** Blocks of the prompt that the store lacks at first. */
  readonly missing: readonly Place[];
  /** Blocks whose first load fails. */
  readonly failing: readonly Place[];
  /** After the first load, the store has all blocks once more, and they all fail. Default: it has no block any more. */
  readonly failsAgain?: boolean;
  /** The step after which the first load is decided. Default: the first. */
  readonly lateSteps?: number;
  /** The reports name the failed blocks as busy. */
  readonly isBlockBusy?: boolean;
  readonly budget?: number;
}

/** Runs the request alone with sync loads. Returns the tokens of the prompt that were computed, in the order of the steps. */
function run(groups: readonly KvGroupSpec[], store: Store): string {
  const { missing, failing, lateSteps = 0, isBlockBusy = false, failsAgain = false, budget = 16 } = store;
  const world = connected(1000, { maxNumBatchedTokens: budget }, {}, groups);
  const { connector, scheduler, loads } = world;
  connector.mode = 'sync';
  connector.blocks = () => Infinity;
  const getMatchedBlocks = connector.getMatchedBlocks.bind(connector);
  let answers = 0;
  connector.getMatchedBlocks = (asked) => {
    const isFirst = answers++ === 0;
    const wanted = asked.wanted.filter((block) => (isFirst ? !has(missing, block) : failsAgain && answers < 4));
    return getMatchedBlocks({ ...asked, wanted });
  };
  scheduler.add(request);
  let computed = '';
  let first: LoadJob | undefined;
  let decided: LoadJob | undefined;
  for (let step = 0; scheduler.hasWork(); step++) {
    scheduler.notifyTransfers();
    const plan = world.plan()!;
    const load = loads.get(request.id)!;
    first ??= load;
    const fails = (block: LoadBlock): boolean => load !== first || has(failing, block);
    let unavailable: readonly LoadBlock[] = [];
    const reports: LoadReport[] = [];
    if (load !== decided && step >= lateSteps) {
      decided = load;
      fillLoad(world, load, request, fails);
      unavailable = load.blocks.filter(fails);
      const failed = unavailable.map(({ index }) => index);
      reports.push({ load, failed, isBlockBusy, ...(load === first ? { failedGroup: failing[0]![0] } : {}) });
    } else if (load !== decided) unavailable = load.blocks;
    // As a worker does: it computes nothing for a request that reads a block without its KV.
    const invalid = new InvalidBlocks(
      world.runner.kvCacheSpec,
      unavailable.map(({ block }) => block),
    );
    const leftOut = plan.sequences.flatMap((sequence, i) =>
      invalid.firstDependentToken(sequence) === Infinity ? [] : [i],
    );
    if (leftOut.length === 0) computed += spansOf(plan);
    world.apply(plan, reports, leftOut);
  }
  const text = world.updates.flatMap(({ newTokens }) => newTokens.map(({ token }) => token));
  expect(text).toEqual(referenceOutput(request, world.runner.kvCacheSpec, world.runner.vocabSize, 10_000).tokens);
  return merged(computed);
}

const spansOf = ({ sequences }: ScheduledStep): string =>
  sequences.flatMap(({ spans }) => spans.map(({ start, end }) => `${start}-${end} `)).join('');

/** Adjacent spans as one, and without the generated tokens. */
function merged(spans: string): string {
  const joined = spans.trim().replaceAll(/-(\d+) \1(?=-)/g, '');
  return joined.replace(/-1602$/, '-1600');
}

const cases: readonly (Store & { what: string; other: KvGroupSpec; budget?: number; computed: string })[] = [
  {
    what: 'the request continues from the running state',
    other: stateOf(32),
    missing: [[0, 50]],
    failing: [[1, 48]],
    computed: '800-1600',
  },
  {
    what: 'the running state has the block index of the failed state',
    other: stateOf(1568),
    missing: [[0, 50]],
    failing: [[1, 0]],
    computed: '0-1600',
  },
  {
    what: 'a window is computed from the partial block on',
    other: windowOf(32, 128),
    missing: [[0, 50]],
    failing: [[1, 48]],
    computed: '800-1472 1536-1568 1599-1600',
  },
  {
    what: 'the request needs the running state, and later the checkpoint of the same block',
    other: stateOf(64),
    missing: [
      [0, 48],
      [0, 52],
    ],
    failing: [[0, 49]],
    computed: '768-800 832-848 1536-1600',
  },
  {
    what: 'the failure comes in the middle of a span, and a later span needs the checkpoint of the same block',
    other: stateOf(64),
    budget: 8,
    missing: [
      [0, 48],
      [0, 52],
    ],
    failing: [[0, 49]],
    computed: '768-800 832-848 1536-1600',
  },
];

describe.each(cases)('sync loads fail after tokens were computed for another group: $what', (which) => {
  const { other, computed } = which;
  test.each([
    { when: 'in the step that loads', lateSteps: 0, isBlockBusy: false },
    { when: 'in the step that loads, and I/O still writes the block', lateSteps: 0, isBlockBusy: true },
    { when: 'three steps later', lateSteps: 3, isBlockBusy: false },
  ])('$when', ({ lateSteps, isBlockBusy }) => {
    expect(run([full, other], { ...which, lateSteps, isBlockBusy })).toBe(computed);
  });

  test('the store has the next earlier block of the failed one, but it fails too', () => {
    expect(run([full, other], { ...which, failsAgain: true })).toBe(computed);
  });
});

describe('a decoding request loses its running state', () => {
  const decoding = short('1', range(100), 60);

  /**
   * After 41 output tokens, state blocks are lost, or all blocks. The store has the blocks of the first `stored` indices. Returns
   * the tokens that are computed before the next output token.
   */
  function repairOf(lost: 'running' | 'states' | 'all', stored: number): string {
    const world = connected(1000, {}, {}, [full, stateOf(16)]);
    const { connector, scheduler, runner, updates } = world;
    scheduler.add(decoding);
    const seen = [new Set<BlockId>(), new Set<BlockId>()];
    let running = NULL_BLOCK;
    while (updates.length < 41) {
      const plan = world.plan()!;
      const tables = plan.sequences[0]!.blockTables;
      for (const [group, { ids, length }] of tables.entries())
        for (const block of ids.subarray(0, length)) if (block !== NULL_BLOCK) seen[group]!.add(block as BlockId);
      running = tables[1]!.ids[tables[1]!.length - 1] as BlockId;
      world.apply(plan);
    }
    connector.blocks = () => stored;
    const blocks = { running: [running], states: [...seen[1]!], all: [...seen[0]!, ...seen[1]!] }[lost];
    for (const block of blocks) runner.overwrite(block);
    scheduler.invalidate(blocks);
    let computed = '';
    while (updates.length === 41) {
      scheduler.notifyTransfers();
      const plan = world.plan()!;
      computed += spansOf(plan);
      const loads = plan.connectorMetadata!.loads;
      for (const load of loads) fillLoad(world, load, decoding);
      world.apply(
        plan,
        loads.map((load) => ({ load })),
      );
    }
    while (scheduler.hasWork()) world.step();
    const text = updates.flatMap(({ newTokens }) => newTokens.map(({ token }) => token));
    expect(text).toEqual(referenceOutput(decoding, runner.kvCacheSpec, runner.vocabSize, 10_000).tokens);
    return merged(computed);
  }

  test('it continues from the last checkpoint in the pool', () => {
    expect(repairOf('running', 6)).toBe('128-141');
  });

  test('if the pool has no checkpoint, it continues from the last one in the store', () => {
    expect(repairOf('states', 6)).toBe('96-141');
    expect(repairOf('states', 3)).toBe('48-141');
  });

  test('after the loss of all blocks, it loads the last checkpoint and the blocks before it', () => {
    expect(repairOf('all', 6)).toBe('96-141');
  });

  test('without any checkpoint, it computes all tokens', () => {
    expect(repairOf('states', 0)).toBe('0-141');
  });
});
