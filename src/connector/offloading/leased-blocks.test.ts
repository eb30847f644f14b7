import { describe, expect, it } from 'vitest';
import { ManualTime } from '../../../test/support/manual-time.ts';
import { suiteBytes, suiteKey } from '../tier/tier.suite.ts';
import { newSecondary, open, turn } from './secondary-under-test.suite.ts';
import { WritePace } from './write-pace.ts';

const busy = (time: ManualTime): WritePace => {
  const pace = new WritePace({ clock: time, timers: time, isBusy: () => true, busyShare: 0.01 });
  pace.computing(true);
  return pace;
};

type UnderTest = ReturnType<typeof newSecondary>;
const keep = ({ host }: UnderTest, i: number) => host.storeNow(suiteKey(i), suiteBytes(suiteKey(i)));
const lease = ({ secondary, host }: UnderTest, ...blocks: number[]): void =>
  secondary.lease(
    blocks.map((i) => suiteKey(i)),
    (key) => host.holds(key),
  );
const written = ({ waiting }: UnderTest) => waiting.map(({ key }) => key);
/** Evicts all blocks of host memory that are not pinned. */
const fillHost = (under: UnderTest): void => {
  for (let i = 100; i < 130; i++) keep(under, i);
};

describe('leased blocks', () => {
  it('are written before other blocks and at once, also while no other write may start', async () => {
    const time = new ManualTime();
    const under = newSecondary({ time, pace: busy(time), storesAtOnce: 2 });
    for (const i of [1, 2, 3]) keep(under, i);
    for (const i of [1, 2]) under.secondary.offer(suiteKey(i));
    expect(written(under)).toEqual([]);
    lease(under, 2, 3);
    under.secondary.offer(suiteKey(3));
    expect(written(under)).toEqual([2, 3].map((i) => suiteKey(i)));
    for (const { go } of under.waiting) go();
    await turn();
    expect(under.secondary.levels()).toMatchObject({ openStores: 1 });
    under.secondary.checkInvariants();
  });

  it('may be leased before they are in host memory', () => {
    const time = new ManualTime();
    const under = newSecondary({ time, pace: busy(time) });
    lease(under, 1);
    keep(under, 1);
    under.secondary.offer(suiteKey(1));
    expect(written(under)).toEqual([suiteKey(1)]);
  });

  it('stay in host memory while they wait, until the lease is over; then they wait like others', async () => {
    const under = newSecondary({ leaseMs: 500 });
    for (const i of [1, 2, 3]) {
      keep(under, i);
      under.secondary.offer(suiteKey(i));
    }
    // The first block is being written. It takes long.
    lease(under, 2);
    fillHost(under);
    expect([2, 3].map((i) => under.host.holds(suiteKey(i)))).toEqual([true, false]);
    under.time.advance(500);
    fillHost(under);
    expect(under.host.holds(suiteKey(2))).toBe(false);
    expect(under.secondary.totals()).toMatchObject({ leaseExpired: 1 });
    under.waiting[0]!.go();
    await under.secondary.whenWritten();
    expect(under.secondary.totals()).toMatchObject({ storedBlocks: 1, dropped: 2 });
    under.secondary.checkInvariants();
  });

  it('are written again if the tier has lost them, and not if the tier has them', async () => {
    const under = newSecondary();
    for (const i of [1, 2]) keep(under, i);
    await under.inner.store(suiteKey(1), suiteBytes(suiteKey(1)), open);
    lease(under, 1, 2);
    await turn();
    expect(written(under)).toEqual([suiteKey(2)]);
    under.waiting[0]!.go();
    await under.secondary.whenWritten();
    expect(await under.inner.has([suiteKey(2)], open)).toEqual([true]);
    fillHost(under);
    expect([1, 2].map((i) => under.host.holds(suiteKey(i)))).toEqual([false, false]);
    expect(under.time.pending).toBe(0);
  });

  it.each([
    ['fails', () => Promise.reject(new Error('down'))],
    [
      'hangs',
      (keys: readonly unknown[], signal: AbortSignal) =>
        new Promise((resolve) => signal.addEventListener('abort', () => resolve(keys.map(() => undefined)))),
    ],
  ])('are written if the look-up in the tier %s', async (_, has) => {
    const under = newSecondary();
    Object.assign(under.inner, { has });
    keep(under, 1);
    lease(under, 1);
    under.time.advance(100);
    await turn();
    expect(written(under)).toEqual([suiteKey(1)]);
  });

  it('have leases that end one after the other', () => {
    const under = newSecondary({ leaseMs: 500 });
    for (const i of [1, 2, 3]) {
      keep(under, i);
      under.secondary.offer(suiteKey(i));
    }
    lease(under, 2);
    under.time.advance(300);
    lease(under, 3);
    under.time.advance(300);
    fillHost(under);
    expect([2, 3].map((i) => under.host.holds(suiteKey(i)))).toEqual([false, true]);
    expect(under.secondary.totals()).toMatchObject({ leaseExpired: 1 });
  });

  it('of a tier that is down are given up at once', async () => {
    const under = newSecondary();
    for (let i = 0; i < 3; i++) {
      keep(under, i);
      under.secondary.offer(suiteKey(i));
      under.time.advance(1_000);
    }
    expect(under.secondary.levels().breakerOpen?.store).toBe(1);
    keep(under, 9);
    under.secondary.offer(suiteKey(9));
    lease(under, 8);
    keep(under, 8);
    under.secondary.offer(suiteKey(8));
    fillHost(under);
    expect(under.host.holds(suiteKey(8))).toBe(false);
    under.secondary.checkInvariants();
  });

  it('leave half of the queue to other blocks', () => {
    const under = newSecondary({ queuedMax: 4 });
    for (let i = 0; i < 6; i++) keep(under, i);
    under.secondary.offer(suiteKey(0));
    for (const i of [1, 2, 3]) lease(under, i);
    for (const i of [1, 2, 3]) under.secondary.offer(suiteKey(i));
    fillHost(under);
    expect([1, 2, 3].map((i) => under.host.holds(suiteKey(i)))).toEqual([true, true, false]);
    under.secondary.checkInvariants();
  });

  it('when closed, are pinned no more', async () => {
    const under = newSecondary();
    for (const i of [1, 2]) {
      keep(under, i);
      under.secondary.offer(suiteKey(i));
    }
    lease(under, 2);
    const closing = under.secondary.close();
    under.waiting[0]!.go();
    await closing;
    await turn();
    expect(under.host.levels()).toMatchObject({ pinnedBlocks: 0 });
    expect(under.time.pending).toBe(0);
  });
});
