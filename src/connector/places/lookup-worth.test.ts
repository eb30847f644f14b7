import { describe, expect, it, vi } from 'vitest';
import { suiteBytes, suiteKey } from '../tier/tier.suite.ts';
import { LookupWorth } from './lookup-worth.ts';
import { found, newScheduler, open, request, settled, valid } from './scheduler-under-test.suite.ts';

describe('LookupWorth', () => {
  it('a request waits as long as the probable gain is at least the duration of a look-up', () => {
    const worth = new LookupWorth();
    for (let i = 0; i < 19; i++) worth.ended(false, 5);
    expect([worth.isWorthWaiting(100), worth.isWorthWaiting(99)]).toEqual([true, false]);
    worth.ended(false);
    expect([worth.isWorthWaiting(105), worth.isWorthWaiting(104)]).toEqual([true, false]);
  });

  it('every request waits before 16 look-ups, after a hit, and if it is not known how long computing takes', () => {
    const worth = new LookupWorth();
    for (let i = 0; i < 15; i++) worth.ended(false, 5);
    expect(worth.isWorthWaiting(1)).toBe(true);
    worth.ended(false, 5);
    expect([worth.isWorthWaiting(1), worth.isWorthWaiting(undefined)]).toEqual([false, true]);
    worth.ended(true);
    expect(worth.isWorthWaiting(1)).toBe(true);
  });

  it('a prompt that takes 100 times as long as a look-up always waits', () => {
    const worth = new LookupWorth();
    for (let i = 0; i < 10_000; i++) worth.ended(false, 5);
    expect([worth.isWorthWaiting(500), worth.isWorthWaiting(499)]).toEqual([true, false]);
  });
});

describe('an idle engine whose look-ups found nothing', () => {
  /** 20 requests that found nothing in 5 ms each. */
  async function afterMisses() {
    const world = newScheduler();
    const has = vi.spyOn(world.store, 'has');
    for (let i = 0; i < 20; i++) {
      const asked = { ...request(`miss ${i}`, [50 + i]), computeMs: 100 };
      expect(world.scheduler.getMatchedBlocks(asked)).toMatchObject({ kind: 'askLater' });
      world.time.advance(5);
      await settled();
      expect(world.scheduler.getMatchedBlocks(asked)).toEqual(found());
    }
    has.mockClear();
    const ask = (id: string, index: number, computeMs?: number) =>
      world.scheduler.getMatchedBlocks({ ...request(id, [index]), ...(computeMs === undefined ? {} : { computeMs }) });
    return { ...world, has, ask };
  }

  it('computes short prompts at once, and looks up one of them at a time', async () => {
    const { ask, has, wakeups } = await afterMisses();
    const before = wakeups();
    for (let i = 1; i <= 8; i++) expect(ask(`together ${i}`, i, 50)).toEqual(found());
    await settled();
    expect(has).toHaveBeenCalledTimes(1);
    expect(ask('later', 9, 50)).toEqual(found());
    await settled();
    expect(has).toHaveBeenCalledTimes(2);
    expect(wakeups()).toBe(before);
  });

  it('waits for the look-ups of long prompts, and of prompts of which nothing is known', async () => {
    const { ask } = await afterMisses();
    expect(ask('long', 1, 10_000)).toMatchObject({ kind: 'askLater' });
    expect(ask('unknown', 2)).toMatchObject({ kind: 'askLater' });
  });

  it('looks up a request that arrives while a step is in flight, because it waits anyway', async () => {
    const { scheduler, store, step, output, ask } = await afterMisses();
    await store.store(suiteKey(1), suiteBytes(suiteKey(1)), open);
    step([]);
    scheduler.requestArrived({ ...request('a', [1]), computeMs: 100 });
    await settled();
    output({});
    expect(ask('a', 1, 100)).toEqual(found([1, 'disk']));
  });

  it('waits again after a look-up of such a request has found something', async () => {
    const { store, ask } = await afterMisses();
    await store.store(suiteKey(1), suiteBytes(suiteKey(1)), open);
    expect(ask('first', 1, 100)).toEqual(found());
    await settled();
    expect(ask('second', 1, 100)).toMatchObject({ kind: 'askLater' });
    await settled();
    expect(ask('second', 1, 100)).toEqual(found([1, 'disk']));
  });

  it('waits for blocks that another server has promised', async () => {
    const { scheduler } = await afterMisses();
    const params = { do_remote_prefill: true, remote_block_ids: [[1]] };
    const asked = { ...request('a', [1], params), computeMs: 100 };
    expect(scheduler.getMatchedBlocks(asked)).toMatchObject({ kind: 'askLater' });
    await scheduler.close();
  });

  it('waits for blocks that have left host memory, until a look-up does not find them', async () => {
    const { save, output, ask } = await afterMisses();
    save(valid(1));
    output({ evicted: [suiteKey(1)] });
    expect(ask('first', 1, 100)).toMatchObject({ kind: 'askLater' });
    await settled();
    expect(ask('first', 1, 100)).toEqual(found());
    expect(ask('second', 1, 50)).toEqual(found());
  });

  it('waits for whole prompts, if only look-ups of the rest of prompts found nothing', async () => {
    const { ask } = await afterMisses();
    expect(ask('rest', 1, 100)).toEqual(found());
    expect(ask('whole', 0, 100)).toMatchObject({ kind: 'askLater' });
  });

  it('ends the look-up of such a request when it closes', async () => {
    const { scheduler, store, ask, time, has } = await afterMisses();
    let signal: AbortSignal | undefined;
    has.mockImplementation((_, given) => {
      signal = given;
      return new Promise(() => undefined);
    });
    expect(ask('first', 1, 100)).toEqual(found());
    await scheduler.close();
    expect([signal?.aborted, time.pending]).toEqual([true, 0]);
    await store.close();
  });
});
