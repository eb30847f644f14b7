import { describe, expect, it } from 'vitest';
import type { LoadJob } from '../../src/connector/connector.ts';
import type { TokenCount } from '../../src/core/ids.ts';
import type { KvGroupSpec } from '../../src/core/kv-spec.ts';
import { PROBE_AFTER } from '../../src/scheduler/load-choice.ts';
import type { LoadPrices } from '../../src/scheduler/load-cost.ts';
import { connected, fillLoad } from '../connected.ts';
import { range, short } from '../harness.ts';

const blockSize = 16 as TokenCount;
/** Two blocks for each index. Models with several groups do not race, so each prompt has one decision. */
const twoGroups: KvGroupSpec[] = [
  { kind: 'full', blockSize, layers: [0] },
  { kind: 'full', blockSize, layers: [1] },
];
const prompt = (seed: number) => range(161, 1000 * seed);

interface Prices {
  /** Milliseconds for the token at this position. */
  readonly token?: (position: number) => number;
  /** Milliseconds for each index of a place. */
  readonly block?: Readonly<Record<string, number>>;
  readonly isReady?: boolean;
}

function prices({ token = () => 1, block = { store: 1 }, isReady = true }: Prices, blocksPerIndex: number): LoadPrices {
  return {
    isReady,
    computeMs: (spans) => {
      let ms = 0;
      for (const { start, end } of spans) for (let at: number = start; at < end; at++) ms += token(at);
      return ms;
    },
    loadMs: (counts) => [...counts].reduce((ms, [place, count]) => ms + (count * block[place]!) / blocksPerIndex, 0),
  };
}

const indicesOf = (load: LoadJob | undefined): number[] => [
  ...new Set(load?.blocks.map(({ index }) => index as number)),
];

/** A store that has all ten full blocks of each prompt. */
function world(given: Prices, groups: readonly KvGroupSpec[] = twoGroups) {
  const opened = connected(
    400,
    {},
    { loadPolicy: 'auto', loadPrices: prices(given, groups === twoGroups ? 2 : 1) },
    groups,
  );
  opened.connector.blocks = () => 10;
  const ask = (seed: number) => {
    const request = short(`r${seed}`, prompt(seed), 1);
    opened.scheduler.add(request);
    const plan = opened.plan()!;
    const load = plan.connectorMetadata!.loads[0];
    if (load !== undefined) fillLoad(opened, load, request);
    opened.apply(plan);
    if (load !== undefined) opened.step([{ load }]);
    for (let steps = 0; opened.scheduler.hasWork(); steps++) {
      expect(steps).toBeLessThan(20);
      opened.step();
    }
    const { stats, finish } = opened.updates.at(-1)!;
    expect(finish?.reason).toBe('length');
    return { loaded: indicesOf(load), computed: stats.computedTokens };
  };
  return { ...opened, ask };
}

describe('of the promised blocks, the engine loads', () => {
  it('all, if loading is faster', () => {
    expect(world({ block: { store: 15 } }).ask(1)).toEqual({ loaded: range(10), computed: 1 });
  });

  it('none, if computing is clearly faster', () => {
    expect(world({ block: { store: 20 } }).ask(1)).toEqual({ loaded: [], computed: 161 });
    expect(world({ block: { store: 17 } }).ask(1).loaded).toEqual(range(10));
  });

  it('all, as long as too little was measured', () => {
    expect(world({ block: { store: 1000 }, isReady: false }).ask(1).loaded).toEqual(range(10));
  });

  it('those whose tokens cost the most: the last ones', () => {
    // A token at position p costs p / 80: a block at index 5 costs as much as its load.
    const { ask } = world({ token: (position) => position / 80, block: { store: 16 } });
    const { loaded, computed } = ask(1);
    expect(loaded).toEqual(range(10 - loaded[0]!, loaded[0]));
    expect(loaded[0]).toBeGreaterThanOrEqual(4);
    expect(loaded[0]).toBeLessThanOrEqual(5);
    expect(computed).toBe(16 * loaded[0]! + 1);
  });

  it('the blocks of the faster place', () => {
    const opened = world({ block: { slow: 40, fast: 4 } });
    opened.connector.place = ({ index }) => (index % 2 === 0 ? 'slow' : 'fast');
    expect(opened.ask(1)).toEqual({ loaded: [1, 3, 5, 7, 9], computed: 81 });
  });

  it('all or none, in a model with a running state', () => {
    const groups: KvGroupSpec[] = [
      { kind: 'full', blockSize, layers: [0] },
      { kind: 'state', blockSize, layers: [1] },
    ];
    const cheap = world({ token: (position) => position / 80, block: { store: 10 } }, groups);
    expect(cheap.ask(1).loaded).toEqual(range(10));
    expect(world({ block: { store: 20 } }, groups).ask(1)).toEqual({ loaded: [], computed: 161 });
  });
});

it(`a place that was skipped ${PROBE_AFTER - 1} times is measured with a few blocks the next time`, () => {
  const { ask } = world({ block: { store: 20 } });
  for (let round = 0; round < 2; round++) {
    for (let i = 1; i < PROBE_AFTER; i++) expect(ask(round * PROBE_AFTER + i).loaded).toEqual([]);
    expect(ask((round + 1) * PROBE_AFTER)).toEqual({ loaded: [8, 9], computed: 8 * 16 + 1 });
  }
});

describe('prices that are learned', () => {
  /** Loads take `loadMs`, and steps one millisecond for each token. Returns how many blocks a request loads. */
  function asking(loadPolicy: 'auto' | 'always', loadMs: (seed: number) => number) {
    const opened = connected(4000, {}, { loadPolicy }, twoGroups);
    opened.connector.blocks = () => 10;
    return (seed: number): number => {
      const request = short(`r${seed}`, prompt(seed), 1);
      opened.scheduler.add(request);
      let open: { readonly load: LoadJob; readonly endMs: number } | undefined;
      let blocks = 0;
      while (opened.scheduler.hasWork()) {
        opened.scheduler.notifyTransfers();
        const plan = opened.plan()!;
        const [load] = plan.connectorMetadata!.loads;
        if (load !== undefined) {
          fillLoad(opened, load, request);
          open = { load, endMs: opened.clock.nowMs + loadMs(seed) };
          blocks = indicesOf(load).length;
        }
        const isIdle = plan.tokenCount === 0 && open !== undefined;
        opened.clock.nowMs = isIdle ? open!.endMs : opened.clock.nowMs + plan.tokenCount;
        const isOver = open !== undefined && open.endMs <= opened.clock.nowMs;
        opened.apply(plan, isOver ? [{ load: open!.load }] : []);
        if (isOver) open = undefined;
      }
      return blocks;
    };
  }

  it('a slow place is no longer used after a few loads', () => {
    const ask = asking('auto', () => 400);
    const loaded = range(16, 1).map(ask);
    expect(loaded.slice(0, 3)).toEqual([10, 10, 10]);
    expect(loaded.slice(-8)).toEqual(range(8).map(() => 0));
  });

  it('a fast place is always used', () => {
    expect(range(40, 1).map(asking('auto', () => 10))).toEqual(range(40).map(() => 10));
  });

  it('a place that becomes faster is used again', () => {
    const ask = asking('auto', (seed) => (seed < 20 ? 400 : 10));
    const loaded = range(6 * PROBE_AFTER, 1).map(ask);
    expect(loaded.slice(10, 20)).toEqual(range(10).map(() => 0));
    expect(loaded.slice(-PROBE_AFTER)).toEqual(range(PROBE_AFTER).map(() => 10));
  });

  it('with the policy `always`, a slow place is used, too', () => {
    expect(range(16, 1).map(asking('always', () => 400))).toEqual(range(16).map(() => 10));
  });
});
