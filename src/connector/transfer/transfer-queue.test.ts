import { expect, test } from 'vitest';
import { ManualTime } from '../../../test/support/manual-time.ts';
import type { TransferId } from '../connector.ts';
import { type TransferGate, TransferQueue } from './transfer-queue.ts';

const id = (n: number) => n as TransferId;

/** Items are names. Each ends when the test calls `end` or `fail`. */
function make(options: { concurrency?: number; gate?: TransferGate } = {}) {
  const time = new ManualTime();
  const ends = new Map<string, (reason?: string) => void>();
  const failing = new Map<string, () => void>();
  const aborted: string[] = [];
  let changes = 0;
  const queue = new TransferQueue<string, string>({
    concurrency: options.concurrency ?? 2,
    clock: time,
    timers: time,
    gate: options.gate,
    run: (item, signal) =>
      new Promise((resolve, reject) => {
        ends.set(item, (reason) => resolve(reason));
        failing.set(item, () => reject(new Error('down')));
        signal.addEventListener('abort', () => {
          // All items of a transfer share one signal, and this item may have ended.
          if (ends.has(item))
            aborted.push(`${item}:${(signal.reason as Error).message.replace('the transfer has ended: ', '')}`);
        });
      }),
    onChange: () => changes++,
  });
  const end = async (item: string, reason?: string): Promise<void> => {
    ends.get(item)!(reason);
    ends.delete(item);
    await new Promise((resolve) => setImmediate(resolve));
    queue.checkInvariants();
  };
  const fail = async (item: string): Promise<void> => {
    failing.get(item)!();
    ends.delete(item);
    await new Promise((resolve) => setImmediate(resolve));
  };
  const report = () => {
    const { decided, drained, failures } = queue.takeReport();
    return {
      decided,
      drained,
      failed: failures.map(({ item, reason, isBusy }) => `${item}:${reason}${isBusy ? ' busy' : ''}`),
    };
  };
  return { time, queue, ends, end, fail, aborted, report, changes: () => changes };
}

test('items that are done before their transfer is decided are reported', async () => {
  const { queue, end } = make();
  queue.submit(id(1), ['a', 'b', 'c'], { timeoutMs: 100 });
  await end('a');
  await end('b', 'missing');
  expect(queue.takeReport().done).toEqual([{ transfer: 1, item: 'a' }]);
  expect(queue.takeReport().done).toEqual([]);
  // The last item decides the transfer.
  await end('c');
  expect(queue.takeReport()).toMatchObject({ decided: [1], done: [] });
});

test('as many items as the concurrency allows run at once, in order, urgent items first', async () => {
  const { queue, ends, end, report } = make();
  queue.submit(id(1), ['a', 'b', 'c', 'd'], { timeoutMs: 100 });
  queue.submit(id(2), ['u'], { timeoutMs: 100, urgent: true });
  expect([...ends.keys()]).toEqual(['a', 'b']);
  await end('b');
  expect([...ends.keys()]).toEqual(['a', 'u']);
  await end('u');
  expect(report()).toEqual({ decided: [2], drained: [2], failed: [] });
  for (const item of ['a', 'c', 'd']) await end(item);
  expect(report()).toEqual({ decided: [1], drained: [1], failed: [] });
  expect(report()).toEqual({ decided: [], drained: [], failed: [] });
});

test('an item that fails has its own reason, and the other items succeed', async () => {
  const { queue, end, fail, report } = make({ concurrency: 3 });
  queue.submit(id(1), ['a', 'b', 'c'], { timeoutMs: 100 });
  await end('a', 'corrupt');
  expect(report()).toEqual({ decided: [], drained: [], failed: ['a:corrupt'] });
  await fail('b');
  await end('c');
  expect(report()).toEqual({ decided: [1], drained: [1], failed: ['b:storeFailed'] });
});

test('a transfer is decided at its deadline, and drained when its running items have ended', async () => {
  const { time, queue, ends, end, aborted, report } = make();
  queue.submit(id(1), ['a', 'b', 'c'], { timeoutMs: 100 });
  await end('a');
  const decided = queue.whenDecided(id(1));
  time.advance(100);
  await decided;
  queue.checkInvariants();
  expect(aborted).toEqual(['b:timedOut', 'c:timedOut']);
  expect(report()).toEqual({ decided: [1], drained: [], failed: ['b:timedOut busy', 'c:timedOut busy'] });
  expect(queue.openCount).toBe(1);
  await end('b');
  expect(queue.openCount).toBe(1);
  await end('c', 'corrupt');
  expect(report()).toEqual({ decided: [], drained: [1], failed: [] });
  expect(queue.lateCount).toBe(2);
  expect(queue.openCount).toBe(0);
  expect(time.pending).toBe(0);
  expect(ends.size).toBe(0);
});

test('items that hang do not stop other transfers', async () => {
  const { time, queue, ends, end, report } = make();
  queue.submit(id(1), ['h1', 'h2'], { timeoutMs: 100 });
  queue.submit(id(2), ['a'], { timeoutMs: 300 });
  expect([...ends.keys()]).toEqual(['h1', 'h2']);
  time.advance(100);
  expect([...ends.keys()]).toEqual(['h1', 'h2', 'a']);
  await end('a');
  expect(report()).toMatchObject({ decided: [1, 2], drained: [2] });
});

test('items that stall do not count against the concurrency, and may still succeed', async () => {
  const { time, queue, ends, end, report } = make();
  queue.submit(id(1), ['h1', 'h2', 'h3', 'a', 'b', 'c'], { timeoutMs: 2000 });
  time.advance(99);
  expect([...ends.keys()]).toEqual(['h1', 'h2']);
  time.advance(1);
  expect([...ends.keys()]).toEqual(['h1', 'h2', 'h3', 'a']);
  await end('a');
  await end('b');
  await end('c');
  expect(time.nowMs()).toBe(100);
  await end('h2');
  expect(queue.lateCount).toBe(0);
  time.advance(1900);
  queue.checkInvariants();
  expect(report()).toEqual({ decided: [1], drained: [], failed: ['h1:timedOut busy', 'h3:timedOut busy'] });
  await end('h1');
  await end('h3');
  expect(report()).toEqual({ decided: [], drained: [1], failed: [] });
  expect(time.pending).toBe(0);
});

test('an item stalls when it runs much longer than the items before it, so a slow store gets no more calls at once', async () => {
  const { time, queue, ends, end } = make({ concurrency: 1 });
  queue.submit(id(1), ['a', 'b', 'c', 'd'], { timeoutMs: 10_000 });
  time.advance(90);
  await end('a');
  // Eight times the 90 ms of the first item.
  time.advance(719);
  expect([...ends.keys()]).toEqual(['b']);
  time.advance(1);
  expect([...ends.keys()]).toEqual(['b', 'c']);
  queue.checkInvariants();
  queue.close();
  expect(time.pending).toBe(0);
});

test('at most 16 stalled items do not count against the concurrency', () => {
  const { time, queue, ends } = make();
  const names = Array.from({ length: 80 }, (_, i) => `h${i}`);
  queue.submit(id(1), names, { timeoutMs: 100_000 });
  time.advance(90_000);
  expect(ends.size).toBe(18);
  queue.checkInvariants();
  time.advance(10_000);
  expect(queue.takeReport().failures.length).toBe(80);
  queue.submit(id(2), ['a'], { timeoutMs: 100 });
  expect(ends.has('a')).toBe(false);
  time.advance(100);
  queue.checkInvariants();
  expect(time.pending).toBe(0);
});

test('there is no stall timer while no item waits', async () => {
  const { time, queue, end } = make();
  queue.submit(id(1), ['a', 'b', 'c'], { timeoutMs: 1000 });
  expect(time.pending).toBe(2);
  await end('a');
  // Only the deadline.
  expect(time.pending).toBe(1);
  queue.submit(id(2), ['d'], { timeoutMs: 1000 });
  expect(time.pending).toBe(3);
  queue.cancel(id(2));
  expect(time.pending).toBe(1);
});

test('a flush starts all items of a transfer at once, and resolves when none of them runs', async () => {
  const { queue, ends, end } = make({ concurrency: 1 });
  queue.submit(id(1), ['a'], { timeoutMs: 100 });
  queue.submit(id(2), ['b', 'c'], { timeoutMs: 100 });
  let isFlushed = false;
  const flushed = queue.flush(id(2)).then(() => (isFlushed = true));
  await queue.flush(id(99));
  expect([...ends.keys()]).toEqual(['a', 'b', 'c']);
  queue.checkInvariants();
  await end('b');
  expect(isFlushed).toBe(false);
  await end('c');
  await flushed;
  queue.checkInvariants();
});

test('a cancelled transfer starts no more items', async () => {
  const { queue, ends, end, aborted, report } = make();
  queue.submit(id(1), ['a', 'b', 'c'], { timeoutMs: 100 });
  queue.cancel(id(1));
  queue.cancel(id(1));
  queue.cancel(id(99));
  expect(aborted).toEqual(['a:cancelled', 'b:cancelled']);
  expect(report()).toMatchObject({
    decided: [1],
    drained: [],
    failed: ['a:cancelled busy', 'b:cancelled busy', 'c:cancelled'],
  });
  await end('a');
  await end('b');
  expect(report().drained).toEqual([1]);
  expect(ends.size).toBe(0);
});

test('an empty transfer is decided and drained at once', () => {
  const { time, queue, report } = make();
  queue.submit(id(1), [], { timeoutMs: 100 });
  expect(report()).toEqual({ decided: [1], drained: [1], failed: [] });
  expect(time.pending).toBe(0);
});

test('a closed queue gives all transfers up, and is drained when the running items have ended', async () => {
  const { queue, end, report } = make({ concurrency: 1 });
  queue.submit(id(1), ['a', 'b'], { timeoutMs: 100 });
  queue.close();
  queue.submit(id(2), ['c'], { timeoutMs: 100 });
  expect(report()).toEqual({ decided: [1, 2], drained: [2], failed: ['a:closed busy', 'b:closed', 'c:closed'] });
  let isDrained = false;
  const drained = queue.whenDrained().then(() => (isDrained = true));
  await new Promise((resolve) => setImmediate(resolve));
  expect(isDrained).toBe(false);
  await end('a');
  await drained;
});

/** A gate that the test opens. */
function closedGate() {
  const waiting: (() => void)[] = [];
  const gate = { isOpen: false, whenOpen: (callback: () => void) => void waiting.push(callback) };
  const open = (): void => {
    gate.isOpen = true;
    for (const callback of waiting.splice(0)) callback();
  };
  return { gate, open, waiting };
}

test('while the gate is closed, only urgent items and flushed transfers start', async () => {
  const { gate, open, waiting } = closedGate();
  const { queue, ends, end } = make({ concurrency: 3, gate });
  queue.submit(id(1), ['a', 'b'], { timeoutMs: 100 });
  queue.submit(id(2), ['f'], { timeoutMs: 100 });
  expect([...ends.keys()]).toEqual([]);
  queue.submit(id(3), ['u'], { timeoutMs: 100, urgent: true });
  const flushed = queue.flush(id(2));
  expect([...ends.keys()]).toEqual(['u', 'f']);
  await end('f');
  await flushed;
  await end('u');
  expect([...ends.keys()]).toEqual([]);
  expect(waiting.length).toBe(1);
  open();
  expect([...ends.keys()]).toEqual(['a', 'b']);
});

test('items that wait for the gate end at their deadline, and do not start when it opens', async () => {
  const { gate, open } = closedGate();
  const { time, queue, ends, report } = make({ gate });
  queue.submit(id(1), ['a'], { timeoutMs: 100 });
  time.advance(100);
  expect(report()).toEqual({ decided: [1], drained: [1], failed: ['a:timedOut'] });
  open();
  expect(ends.size).toBe(0);
  queue.checkInvariants();
});

test('a gate that closes again stops items that have not started', async () => {
  const { gate, open, waiting } = closedGate();
  const { queue, ends, end } = make({ concurrency: 1, gate });
  queue.submit(id(1), ['a', 'b'], { timeoutMs: 100 });
  open();
  gate.isOpen = false;
  await end('a');
  expect([...ends.keys()]).toEqual([]);
  expect(waiting.length).toBe(1);
  open();
  expect([...ends.keys()]).toEqual(['b']);
});
