import { describe, expect, it } from 'vitest';
import { ManualTime } from '../../../test/support/manual-time.ts';
import { suiteBlockBytes, suiteBytes, suiteKey } from '../tier/tier.suite.ts';
import { newSecondary, open, turn } from './secondary-under-test.suite.ts';
import { WritePace } from './write-pace.ts';

const into = () => new Uint8Array(suiteBlockBytes);

describe('SecondaryTier', () => {
  it('a load that is given up at its deadline keeps its buffer until the tier has ended', async () => {
    const { secondary, inner, waiting, buffers, time } = newSecondary({ bufferCount: 1 });
    await inner.store(suiteKey(1), suiteBytes(suiteKey(1)), open);
    const loading = secondary.load(suiteKey(1), into(), open);
    time.advance(100);
    expect(await loading).toBe('timedOut');
    expect(waiting[0]!.signal.aborted).toBe(true);
    expect(await secondary.load(suiteKey(1), into(), open)).toBe('queueFull');
    waiting[0]!.go();
    await turn();
    const block = into();
    const again = secondary.load(suiteKey(1), block, open);
    waiting[1]!.go();
    expect(await again).toBeUndefined();
    expect(block).toEqual(suiteBytes(suiteKey(1)));
    expect(buffers.take()).toBeDefined();
  });

  it('a load of a request that ended is given up at once, and the breaker learns nothing from it', async () => {
    const { secondary, waiting } = newSecondary();
    for (let i = 0; i < 4; i++) {
      const controller = new AbortController();
      const loading = secondary.load(suiteKey(i), into(), controller.signal);
      controller.abort();
      expect(await loading).toBe('cancelled');
    }
    expect(await secondary.load(suiteKey(4), into(), AbortSignal.abort())).toBe('cancelled');
    expect(waiting).toHaveLength(4);
    expect(secondary.levels().breakerOpen?.load).toBe(0);
    expect(secondary.totals()).toMatchObject({ loadFailed: { cancelled: 5 } });
  });

  it('after loads that time out, the breaker answers for the tier', async () => {
    const { secondary, waiting, time } = newSecondary();
    for (let i = 0; i < 3; i++) {
      const loading = secondary.load(suiteKey(i), into(), open);
      time.advance(100);
      expect(await loading).toBe('timedOut');
    }
    expect(await secondary.load(suiteKey(9), into(), open)).toBe('storeDown');
    expect(waiting).toHaveLength(3);
    expect(secondary.levels().breakerOpen?.load).toBe(1);
    // The next load is the probe of the breaker, and its request does not wait for it.
    time.advance(500);
    for (const _ of [1, 2]) expect(await secondary.load(suiteKey(9), into(), open)).toBe('storeDown');
    expect(waiting).toHaveLength(4);
    waiting[3]!.go();
    await turn();
    expect(secondary.levels().breakerOpen?.load).toBe(0);
    const loading = secondary.load(suiteKey(9), into(), open);
    waiting[4]!.go();
    expect(await loading).toBe('missing');
  });

  it('the buffer of a probe is free again when the probe ends', async () => {
    const { secondary, inner, waiting, time, buffers } = newSecondary({ bufferCount: 1 });
    await inner.store(suiteKey(9), suiteBytes(suiteKey(9)), open);
    for (let i = 0; i < 3; i++) {
      const loading = secondary.load(suiteKey(i), into(), open);
      time.advance(100);
      expect(await loading).toBe('timedOut');
      waiting[i]!.go();
      await turn();
    }
    time.advance(500);
    expect(await secondary.load(suiteKey(9), into(), open)).toBe('storeDown');
    expect(buffers.take()).toBeUndefined();
    waiting[3]!.go();
    await turn();
    expect(buffers.take()).toBeDefined();
  });

  it('a block is pinned in host memory while it is written, and dropped if it is evicted before', async () => {
    const { secondary, host, inner, waiting } = newSecondary();
    for (const i of [1, 2]) {
      host.storeNow(suiteKey(i), suiteBytes(suiteKey(i)));
      secondary.offer(suiteKey(i));
    }
    // Ten slots: the pinned block stays, and all others are evicted in turn.
    for (let i = 10; i < 40; i++) host.storeNow(suiteKey(i), suiteBytes(suiteKey(i)));
    expect([1, 2].map((i) => host.holds(suiteKey(i)))).toEqual([true, false]);
    waiting[0]!.go();
    await secondary.whenWritten();
    for (let i = 40; i < 60; i++) host.storeNow(suiteKey(i), suiteBytes(suiteKey(i)));
    expect(host.holds(suiteKey(1))).toBe(false);
    expect(waiting).toHaveLength(1);
    expect(secondary.totals()).toMatchObject({ storedBlocks: 1, dropped: 1 });
    const block = into();
    expect(await inner.load(suiteKey(1), block, open)).toBeUndefined();
    expect(block).toEqual(suiteBytes(suiteKey(1)));
    secondary.checkInvariants();
  });

  it('while the machine is saturated, blocks are written one by one with pauses, and later all that host memory has', async () => {
    const time = new ManualTime();
    const pace = new WritePace({ clock: time, timers: time, isBusy: () => true, busyShare: 0.1 });
    const { secondary, host, waiting } = newSecondary({ storesAtOnce: 2, time, pace });
    pace.computing(true);
    time.advance(5_000);
    for (const i of [1, 2, 3, 4]) {
      host.storeNow(suiteKey(i), suiteBytes(suiteKey(i)));
      secondary.offer(suiteKey(i));
    }
    expect(waiting).toHaveLength(1);
    time.advance(5);
    waiting[0]!.go();
    await turn();
    time.advance(44);
    expect(waiting).toHaveLength(1);
    time.advance(1);
    expect(waiting).toHaveLength(2);
    pace.computing(false);
    time.advance(60);
    expect(waiting).toHaveLength(3);
    for (const { go } of waiting) go();
    await turn();
    waiting[3]!.go();
    await secondary.whenWritten();
    expect(secondary.totals()).toMatchObject({ storedBlocks: 4 });
  });

  it('a store that hangs keeps its block pinned, and the others go on after its deadline', async () => {
    const { secondary, host, waiting, time } = newSecondary();
    for (const i of [1, 2]) {
      host.storeNow(suiteKey(i), suiteBytes(suiteKey(i)));
      secondary.offer(suiteKey(i));
    }
    expect(waiting.map(({ key }) => key)).toEqual([suiteKey(1)]);
    time.advance(1_000);
    expect(waiting.map(({ key }) => key)).toEqual([suiteKey(1), suiteKey(2)]);
    waiting[1]!.go();
    await turn();
    for (let i = 10; i < 40; i++) host.storeNow(suiteKey(i), suiteBytes(suiteKey(i)));
    expect([1, 2].map((i) => host.holds(suiteKey(i)))).toEqual([true, false]);
    expect(secondary.totals()).toMatchObject({ storeFailed: { timedOut: 1 }, storedBlocks: 1 });
    waiting[0]!.go();
    await secondary.whenWritten();
    secondary.checkInvariants();
  });

  it('when closed, drops the blocks that wait', async () => {
    const { secondary, host, waiting } = newSecondary();
    for (const i of [1, 2, 3]) {
      host.storeNow(suiteKey(i), suiteBytes(suiteKey(i)));
      secondary.offer(suiteKey(i));
    }
    const closing = secondary.close();
    expect(secondary.totals()).toMatchObject({ storeFailed: { closed: 2 } });
    waiting[0]!.go();
    await closing;
    secondary.offer(suiteKey(1));
    expect(secondary.totals()).toMatchObject({ dropped: 1 });
  });
});
