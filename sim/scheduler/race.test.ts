import { describe, expect, it } from 'vitest';
import type { LoadJob } from '../../src/connector/connector.ts';
import type { TokenCount } from '../../src/core/ids.ts';
import type { KvGroupSpec } from '../../src/core/kv-spec.ts';
import type { ScheduledStep } from '../../src/scheduler/contract.ts';
import type { LoadPrices } from '../../src/scheduler/load-cost.ts';
import { connected, fillLoad } from '../connected.ts';
import { harness, range, short } from '../harness.ts';

const blockSize = 16 as TokenCount;
const request = short('a', range(161), 4);

/** A token costs 1 ms, and a block of the store `blockMs`. */
const prices = (speed: { blockMs: number }): LoadPrices => ({
  isReady: true,
  computeMs: (spans) => spans.reduce((ms, { start, end }) => ms + end - start, 0),
  loadMs: (counts) => [...counts.values()].reduce((ms, count) => ms + count * speed.blockMs, 0),
});

/** A store that has the ten full blocks of the prompt. Steps compute two blocks. */
function world(speed: { blockMs: number }, groups?: readonly KvGroupSpec[]) {
  const options = { maxNumBatchedTokens: 32 };
  const opened = connected(60, options, { loadPolicy: 'auto', loadPrices: prices(speed) }, groups);
  opened.connector.blocks = () => 10;
  return opened;
}

type World = ReturnType<typeof world>;

const spansOf = (plan: ScheduledStep | undefined): string =>
  plan!.sequences.map(({ spans }) => spans.map(({ start, end }) => `${start}-${end}`).join(' ')).join(', ');
const loadsOf = (plan: ScheduledStep | undefined): number[] =>
  plan!.connectorMetadata!.loads.flatMap(({ blocks }) => blocks.map(({ index }) => index as number));

/** One step. The blocks of new loads are filled at once, except the `failed` ones; `over`: loads that are reported. */
function step(opened: World, over: readonly LoadJob[] = [], failed: readonly number[] = []) {
  opened.scheduler.notifyTransfers();
  const plan = opened.plan()!;
  const { loads } = plan.connectorMetadata!;
  for (const load of loads) fillLoad(opened, load, request, ({ index }) => failed.includes(index));
  opened.apply(
    plan,
    over.map((load) => ({ load, failed })),
  );
  return { plan, load: loads[0] };
}

const tokensOf = ({ updates }: World): number[] =>
  updates.flatMap(({ newTokens }) => newTokens.map(({ token }) => token as number));

/** Ends the request, whose further loads succeed, and compares its tokens with those of an engine without a store. */
function expectSameText(opened: World): void {
  let open: LoadJob | undefined;
  for (let steps = 0; opened.scheduler.hasWork(); steps++) {
    if (steps > 50) throw new Error('the request does not end');
    open = step(opened, open === undefined ? [] : [open]).load;
  }
  const plain = harness(60, {}, blockSize);
  plain.scheduler.add(request);
  plain.drain();
  expect(tokensOf(opened)).toEqual(plain.outputs.get('a'));
}

describe('a request that is alone', () => {
  it('computes the first tokens of its prompt while the last blocks load', () => {
    const opened = world({ blockMs: 16 });
    opened.scheduler.add(request);
    const { plan, load } = step(opened);
    expect([spansOf(plan), loadsOf(plan)]).toEqual(['0-32', range(5, 5)]);
    expect(spansOf(step(opened).plan)).toBe('32-64');
    expect(spansOf(step(opened, [load!]).plan)).toBe('64-80');
    // The two have met: only the last token is left.
    expect(spansOf(step(opened).plan)).toBe('160-161');
    expectSameText(opened);
    const stats = opened.updates.at(-1)!.stats;
    expect(stats).toMatchObject({
      computedTokens: 80 + 1 + 3,
      externalTokens: 80,
      cachedTokens: 80,
      recomputedTokens: 0,
    });
  });

  it('loads a part of the rest if loading was faster than expected', () => {
    const speed = { blockMs: 32 };
    const opened = world(speed);
    opened.scheduler.add(request);
    const { plan, load } = step(opened, []);
    expect(loadsOf(plan)).toEqual([7, 8, 9]);
    speed.blockMs = 4;
    step(opened, [load!]);
    // Four blocks are computed, and three more could be. Loading them takes less time.
    const more = step(opened);
    expect([spansOf(more.plan), loadsOf(more.plan)]).toEqual(['', [4, 5, 6]]);
    expect(spansOf(step(opened, [more.load!]).plan)).toBe('');
    expect(spansOf(step(opened).plan)).toBe('160-161');
    expectSameText(opened);
    expect(opened.updates.at(-1)!.stats).toMatchObject({ computedTokens: 64 + 1 + 3, externalTokens: 96 });
  });

  it('waits for its loads if loading is slower than expected, and computes none of their tokens', () => {
    const opened = world({ blockMs: 16 });
    opened.scheduler.add(request);
    const { load } = step(opened);
    expect(range(4).map(() => spansOf(step(opened).plan))).toEqual(['32-64', '64-80', '', '']);
    step(opened, [load!]);
    expect(spansOf(step(opened).plan)).toBe('160-161');
    expectSameText(opened);
  });

  it('computes blocks whose load fails', () => {
    const opened = world({ blockMs: 16 });
    opened.scheduler.add(request);
    const { load } = step(opened, [], [6, 8]);
    opened.connector.blocks = () => 0;
    step(opened, [load!], [6, 8]);
    expectSameText(opened);
    expect(opened.updates.at(-1)!.stats).toMatchObject({ failedLoads: 2, recomputedTokens: 2 * 16 });
  });

  it('frees its blocks when it is aborted, as soon as the load no longer writes them', () => {
    const opened = world({ blockMs: 16 });
    opened.scheduler.add(request);
    const { load } = step(opened);
    opened.scheduler.abort(request.id);
    // The blocks of the load.
    expect(opened.scheduler.stats().blocks.referenced).toBe(5);
    step(opened, [load!]);
    expect(opened.scheduler.stats().blocks.referenced).toBe(0);
  });
});

it('a request that is not alone waits for all loads, so that others can compute', () => {
  const opened = world({ blockMs: 12 });
  const other = short('b', range(20, 5000), 40);
  opened.scheduler.add(other);
  opened.connector.blocks = (asked) => (asked.id === 'a' ? 10 : 0);
  step(opened);
  opened.scheduler.add(request);
  const { plan } = step(opened);
  expect([spansOf(plan), loadsOf(plan)]).toEqual(['20-21', range(10)]);
  expect(opened.scheduler.stats().waitingForRemoteKv).toBe(1);
});

it('in a model with several groups, no request begins before its loads are over', () => {
  const groups: KvGroupSpec[] = [
    { kind: 'full', blockSize, layers: [0] },
    { kind: 'window', blockSize, layers: [1], window: 64 as TokenCount },
  ];
  const opened = world({ blockMs: 4 }, groups);
  opened.scheduler.add(request);
  const { plan } = step(opened);
  expect(spansOf(plan)).toBe('');
  expect(plan.connectorMetadata!.loads[0]!.blocks.length).toBeGreaterThan(9);
});
