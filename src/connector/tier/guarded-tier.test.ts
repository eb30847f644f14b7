import { describe, expect, it } from 'vitest';
import { ManualTime } from '../../../test/support/manual-time.ts';
import type { TransferId } from '../connector.ts';
import { TransferQueue } from '../transfer/transfer-queue.ts';
import { Guard, GuardedTier } from './guarded-tier.ts';
import { StagingBuffers } from './staging-buffers.ts';
import { suiteBlockBytes, suiteBytes, suiteKey } from './tier.suite.ts';
import type { Tier } from './tier.ts';

const turn = () => new Promise((resolve) => setImmediate(resolve));
const breaker = { failuresMax: 2, coolDownMs: 100, coolDownMaxMs: 100 };

/** A guard, and calls that end when the test says so. */
function make() {
  const time = new ManualTime();
  const guard = new Guard(time, time, breaker);
  const call = (limits: { signal?: AbortSignal; timeoutMs?: number; graceMs?: number } = {}) => {
    const events: string[] = [];
    let end: (answer: string) => void = () => undefined;
    let fail: (error: Error) => void = () => undefined;
    let signal: AbortSignal | undefined;
    const run = (until: AbortSignal): Promise<string> => {
      signal = until;
      return new Promise((resolve, reject) => {
        [end, fail] = [resolve, reject];
      });
    };
    guard.start(guard.breaker.tryAcquire()!, run, limits, {
      answered: (answer) => events.push(answer),
      ended: () => events.push('ended'),
    });
    return { events, end: (answer: string) => end(answer), fail: () => fail(new Error('down')), signal: () => signal };
  };
  return { time, guard, call };
}

describe('Guard', () => {
  it('a call that ends in time has its answer, and leaves no timer', async () => {
    const { time, guard, call } = make();
    const { events, end } = call({ timeoutMs: 50 });
    expect(guard.calls.occupiedCount).toBe(1);
    end('found');
    await turn();
    expect(events).toEqual(['found', 'ended']);
    expect([guard.calls.occupiedCount, time.pending]).toEqual([0, 0]);
  });

  it('a call that hangs is answered at its deadline, fails for the breaker, and ends later', async () => {
    const { time, guard, call } = make();
    const hung = [call({ timeoutMs: 50 }), call({ timeoutMs: 50 })];
    time.advance(50);
    for (const { events, signal } of hung) {
      expect(events).toEqual(['timedOut']);
      expect(signal()!.aborted).toBe(true);
    }
    expect(guard.breaker.state).toBe('open');
    expect([guard.calls.runningCount, guard.calls.stuckCount, guard.calls.occupiedCount]).toEqual([2, 2, 0]);
    hung[0]!.end('too late');
    await turn();
    expect(hung[0]!.events).toEqual(['timedOut', 'ended']);
    expect(guard.calls.runningCount).toBe(1);
  });

  it('only a few calls that hang leave their places to others', () => {
    const { time, guard, call } = make();
    for (let i = 0; i < 20; i++) {
      call({ timeoutMs: 50 });
      time.advance(50);
      // The breaker would refuse most calls.
      if (guard.breaker.state === 'open') time.advance(100);
    }
    expect([guard.calls.stuckCount, guard.calls.occupiedCount]).toEqual([20, 4]);
  });

  it('a call may answer during its grace, and is a failure all the same', async () => {
    const { time, guard, call } = make();
    const [answering, silent] = [call({ timeoutMs: 50, graceMs: 10 }), call({ timeoutMs: 50, graceMs: 10 })];
    time.advance(50);
    expect([answering.events, silent.events]).toEqual([[], []]);
    answering.end('a part');
    await turn();
    time.advance(10);
    expect([answering.events, silent.events]).toEqual([['a part', 'ended'], ['timedOut']]);
    expect(guard.breaker.openedCount).toBe(1);
  });

  it('a call that is cancelled says nothing about the store', async () => {
    const { guard, call } = make();
    for (let i = 0; i < 5; i++) {
      const controller = new AbortController();
      const { events, fail } = call({ signal: controller.signal, timeoutMs: 50 });
      controller.abort();
      expect(events).toEqual(['cancelled']);
      fail();
      await turn();
      expect(events).toEqual(['cancelled', 'ended']);
    }
    const { events, signal } = call({ signal: AbortSignal.abort() });
    expect([events, signal()]).toEqual([['cancelled', 'ended'], undefined]);
    expect(guard.breaker.state).toBe('closed');
  });

  it.each([
    ['without a deadline of its own, a call that a queue gives up at its deadline is a failure', undefined, 'open'],
    ['with a longer deadline of its own, the deadline of a queue says nothing', 500, 'closed'],
  ])('%s', async (_, timeoutMs, state) => {
    const { time, guard } = make();
    const run = (_item: string, signal: AbortSignal) =>
      new Promise<undefined>((resolve) => {
        guard.start(
          guard.breaker.tryAcquire()!,
          () => new Promise(() => undefined),
          { signal, timeoutMs },
          { answered: () => resolve(undefined) },
        );
      });
    const queue = new TransferQueue({ concurrency: 9, clock: time, timers: time, run, onChange: () => undefined });
    queue.submit(1 as TransferId, ['a', 'b'], { timeoutMs: 50 });
    queue.cancel(1 as TransferId);
    expect(guard.breaker.state).toBe('closed');
    queue.submit(2 as TransferId, ['a', 'b'], { timeoutMs: 50 });
    time.advance(50);
    expect(guard.breaker.state).toBe(state);
    await turn();
  });

  it('a call that throws at once fails like one that rejects', async () => {
    const { guard } = make();
    const events: string[] = [];
    const fails = (): Promise<string> => {
      throw new Error('not a promise');
    };
    guard.start(guard.breaker.tryAcquire()!, fails, {}, { answered: (answer) => events.push(answer) });
    await turn();
    expect(events).toEqual(['storeFailed']);
  });
});

describe('GuardedTier', () => {
  /** A tier whose loads wait for the test. */
  function gated() {
    const loads: (() => void)[] = [];
    const tier = {
      name: 'gated',
      load: (key, into) =>
        new Promise((resolve) => {
          loads.push(() => {
            into.set(suiteBytes(key));
            resolve(undefined);
          });
        }),
      counters: () => ({}),
      close: () => Promise.resolve(),
    } as Partial<Tier> as Tier;
    return { tier, loads };
  }
  const open = new AbortController().signal;

  it('with buffers, a load that hangs never writes the memory of its caller', async () => {
    const time = new ManualTime();
    const { tier, loads } = gated();
    const buffers = new StagingBuffers(suiteBlockBytes, 2 * suiteBlockBytes);
    const guarded = new GuardedTier(tier, { clock: time, timers: time, breaker, loadTimeoutMs: 50, buffers });
    const into = new Uint8Array(suiteBlockBytes);
    const late = guarded.load(suiteKey(1), into, open);
    time.advance(50);
    expect(await late).toBe('timedOut');
    const right = guarded.load(suiteKey(2), into, open);
    loads[1]!();
    expect(await right).toBeUndefined();
    loads[0]!();
    await turn();
    expect(into).toEqual(suiteBytes(suiteKey(2)));
    expect(guarded.totals()).toMatchObject({ loadedBlocks: 1, loadFailed: { timedOut: 1 } });
  });

  it('without buffers, a load settles when nothing writes the memory any more', async () => {
    const time = new ManualTime();
    const { tier, loads } = gated();
    const guarded = new GuardedTier(tier, { clock: time, timers: time, breaker });
    const controller = new AbortController();
    let reason: string | undefined;
    void guarded.load(suiteKey(1), new Uint8Array(suiteBlockBytes), controller.signal).then((answer) => {
      reason = answer;
    });
    controller.abort();
    await turn();
    expect(reason).toBeUndefined();
    loads[0]!();
    await turn();
    expect(reason).toBe('cancelled');
  });
});
