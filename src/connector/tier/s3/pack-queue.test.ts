import { expect, it } from 'vitest';
import { ManualTime } from '../../../../test/support/manual-time.ts';
import { suiteKey } from '../tier.suite.ts';
import { PackQueue } from './pack-queue.ts';

class Writer {
  readonly time = new ManualTime();
  readonly written: { readonly count: number; readonly signal: AbortSignal; end(error?: Error): void }[] = [];
  readonly queue = new PackQueue({
    blocksMax: 4,
    writesAtOnce: 2,
    gatherMs: 10,
    timers: this.time,
    write: (pack, signal) =>
      new Promise((resolve, reject) => {
        const end = (error?: Error): void => (error === undefined ? resolve() : reject(error));
        this.written.push({ count: pack.length, signal, end });
      }),
  });
  #serial = 0;

  store(signal = new AbortController().signal): Promise<string> {
    const block = { key: suiteKey(this.#serial++), bytes: new Uint8Array(1) };
    return this.queue.store(block, signal).then(
      () => 'stored',
      (error: Error) => error.message,
    );
  }

  get counts(): number[] {
    return this.written.map(({ count }) => count);
  }
}

it('a full pack is written at once, and the rest after the time for gathering', async () => {
  const writer = new Writer();
  const stores = Array.from({ length: 6 }, () => writer.store());
  expect(writer.counts).toEqual([4]);
  writer.time.advance(9);
  expect(writer.counts).toEqual([4]);
  writer.time.advance(1);
  expect(writer.counts).toEqual([4, 2]);
  for (const { end } of writer.written) end();
  expect(new Set(await Promise.all(stores))).toEqual(new Set(['stored']));
});

it('blocks that wait for a write to end go together', async () => {
  const writer = new Writer();
  for (let i = 0; i < 8; i++) void writer.store();
  const late = [writer.store()];
  writer.time.advance(10);
  late.push(writer.store(), writer.store());
  expect(writer.counts).toEqual([4, 4]);
  writer.written[0]!.end();
  await expect.poll(() => writer.counts).toEqual([4, 4, 3]);
  writer.written[2]!.end();
  expect(await Promise.all(late)).toEqual(['stored', 'stored', 'stored']);
});

it('an aborted store ends at once; a write goes on for the others, and is aborted when no store needs it', async () => {
  const writer = new Writer();
  const controllers = [new AbortController(), new AbortController(), new AbortController()];
  const stores = controllers.map(({ signal }) => writer.store(signal));
  controllers[0]!.abort(new Error('given up'));
  expect(await stores[0]).toBe('given up');
  writer.time.advance(10);
  expect(writer.counts).toEqual([2]);
  controllers[1]!.abort(new Error('given up'));
  expect(await stores[1]).toBe('given up');
  expect(writer.written[0]!.signal.aborted).toBe(false);
  controllers[2]!.abort(new Error('given up'));
  expect(await stores[2]).toBe('given up');
  expect(writer.written[0]!.signal.aborted).toBe(true);
});

it('a failed write fails its own blocks only', async () => {
  const writer = new Writer();
  const first = Array.from({ length: 4 }, () => writer.store());
  const second = Array.from({ length: 4 }, () => writer.store());
  writer.written[0]!.end(new Error('down'));
  writer.written[1]!.end();
  expect(new Set(await Promise.all(first))).toEqual(new Set(['down']));
  expect(new Set(await Promise.all(second))).toEqual(new Set(['stored']));
});

it('after `flush` no block waits for others, and no timer is left', async () => {
  const writer = new Writer();
  const stores = [writer.store()];
  writer.queue.flush();
  expect(writer.counts).toEqual([1]);
  stores.push(writer.store());
  expect(writer.counts).toEqual([1, 1]);
  expect(writer.time.pending).toBe(0);
  for (const { end } of writer.written) end();
  expect(await Promise.all(stores)).toEqual(['stored', 'stored']);
});
