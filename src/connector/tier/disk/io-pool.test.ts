import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { nextTick } from 'node:process';
import { afterAll, expect, it, onTestFinished } from 'vitest';
import { systemClock } from '../../../base/clock.ts';
import { entryPoint } from '../../../base/package-files.ts';
import { systemTimers } from '../../system-timers.ts';
import { suiteIdentity, suiteKey } from '../tier.suite.ts';
import type { DiskAnswer, DiskCall } from './disk-calls.ts';
import { IoPool } from './io-pool.ts';

const root = mkdtempSync(join(tmpdir(), 'kvasir-io-pool-'));
afterAll(() => rmSync(root, { recursive: true }));

/** The query of the entry makes threads of another kind, so no spare thread of this process serves the pool. */
const newPool = (kind: string): IoPool<DiskCall, DiskAnswer> =>
  new IoPool({
    entry: new URL(`?${kind}`, entryPoint('src/connector/tier/disk/disk-thread-main')),
    isBackground: false,
    setup: { root, identity: suiteIdentity, fsync: false, crc32Library: undefined },
    threadsMax: 4,
    clock: systemClock,
    timers: systemTimers,
    tooManyStuck: (count) => new Error(`${count} threads are stuck`),
  });

/** The number of threads that have been created since the call. */
function countThreads(): () => number {
  let created = 0;
  const count = (): void => void created++;
  process.on('worker', count);
  onTestFinished(() => void process.off('worker', count));
  return () => created;
}

it('while a thread starts, waiting calls start no second thread', async () => {
  const created = countThreads();
  const pool = newPool('burst');
  const { signal } = new AbortController();
  const calls = Array.from({ length: 20 }, (_, i) => pool.run({ kind: 'read', key: suiteKey(i) }, signal));
  // Node announces a thread in a tick, and ticks leave the event loop no turn in which the thread could report its start.
  for (let tick = 0; tick < 10; tick++) await new Promise<void>((resolve) => nextTick(resolve));
  expect(created()).toBe(1);
  expect(await Promise.all(calls)).toEqual(calls.map(() => undefined));
  await pool.close();
});

it('calls one after the other use one thread', async () => {
  const created = countThreads();
  const pool = newPool('sequence');
  const { signal } = new AbortController();
  for (let i = 0; i < 20; i++) await pool.run({ kind: 'read', key: suiteKey(i) }, signal);
  expect(created()).toBe(1);
  await pool.close();
});
