/** Storage that does not answer: block files are FIFOs. `open` of a FIFO returns when a process opens it for writing. */
import { spawnSync } from 'node:child_process';
import { closeSync, linkSync, mkdirSync, mkdtempSync, openSync, renameSync, rmSync, writeSync } from 'node:fs';
import { readFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { afterAll, expect, it } from 'vitest';
import { until } from '../../../../test/support/until.ts';
import { blockedThreadCount } from '../../../base/call-thread.ts';
import { systemClock } from '../../../base/clock.ts';
import type { TransferId } from '../../connector.ts';
import { systemTimers } from '../../system-timers.ts';
import { TransferQueue } from '../../transfer/transfer-queue.ts';
import { suiteBlockBytes, suiteBytes, suiteIdentity, suiteKey } from '../tier.suite.ts';
import { DiskTier, type DiskTierOptions } from './tier-disk.ts';

const root = mkdtempSync(join(tmpdir(), 'kvasir-dead-'));
afterAll(() => rmSync(root, { recursive: true }));
let serial = 0;
const open = (options: Partial<DiskTierOptions> = {}) =>
  DiskTier.open({ root: join(root, `${serial++}`), identity: suiteIdentity, maxBytes: 1e9, ...options });
const never = new AbortController().signal;
const block = (): Uint8Array => new Uint8Array(suiteBlockBytes);
const put = (tier: DiskTier, name: number) => tier.store(suiteKey(name), suiteBytes(suiteKey(name)), never);

const makeFifo = (path: string): void => {
  mkdirSync(dirname(path), { recursive: true });
  expect(spawnSync('mkfifo', [path]).status).toBe(0);
};
/** Replaces a block with a FIFO. Returns a function that puts the block back and unblocks the readers. */
function makeHang(tier: DiskTier, name: number): () => void {
  const path = tier.fileOf(suiteKey(name));
  renameSync(path, `${path}.kept`);
  makeFifo(path);
  linkSync(path, `${path}.fifo`);
  return () => {
    // First the block, because a thread that opens the path late must not find a FIFO without a writer.
    renameSync(`${path}.kept`, path);
    unblock(`${path}.fifo`);
  };
}
/** Opens and closes the other end: a blocked `open` returns, and its reader gets the end of the file. */
const unblock = (path: string): void => closeSync(openSync(path, 'r+'));

it('a load that does not return ends at its deadline, and its block is not written afterwards', async () => {
  const tier = await open();
  await put(tier, 1);
  const mend = makeHang(tier, 1);
  const into = block();
  const controller = new AbortController();
  const load = tier.load(suiteKey(1), into, controller.signal);
  controller.abort(new Error('the deadline'));
  await expect(load).rejects.toThrow('the deadline');
  // The thread reads the whole block after the deadline.
  const whole = await readFile(`${tier.fileOf(suiteKey(1))}.kept`);
  const path = tier.fileOf(suiteKey(1));
  const end = openSync(path, 'r+');
  writeSync(end, whole);
  closeSync(end);
  mend();
  await until(() => tier.stuckCount === 0);
  expect(into).toEqual(block());
  expect(await tier.load(suiteKey(1), into, never)).toBeUndefined();
  expect(into).toEqual(suiteBytes(suiteKey(1)));
  await tier.close();
});

it('more hung loads than threads block no other call', async () => {
  const tier = await open({ threads: 2 });
  const names = Array.from({ length: 10 }, (_, i) => i);
  for (const name of names) await put(tier, name);
  const hung = names.slice(0, 6);
  const mends = hung.map((name) => makeHang(tier, name));
  const controller = new AbortController();
  const loads = hung.map((name) => tier.load(suiteKey(name), block(), controller.signal).catch(() => 'aborted'));
  // After a while stalled calls get further threads.
  await until(() => tier.busyCount >= 2);
  controller.abort();
  expect(new Set(await Promise.all(loads))).toEqual(new Set(['aborted']));
  for (const name of names.slice(6)) expect(await tier.load(suiteKey(name), block(), never)).toBeUndefined();
  expect(await put(tier, 100)).toBe('stored');
  const keys = [...names, 101].map((name) => suiteKey(name));
  expect(await tier.has(keys, never)).toEqual([...names.map(() => true), false]);
  for (const mend of mends) mend();
  await until(() => tier.stuckCount === 0);
  for (const name of names) expect(await tier.load(suiteKey(name), block(), never)).toBeUndefined();
  await tier.close();
});

it('if 6 of 90 blocks hang, only these 6 fail, with fewer threads and fewer loads at once', async () => {
  const tier = await open({ threads: 3, startThreads: 3 });
  const names = Array.from({ length: 90 }, (_, i) => i);
  for (const name of names) await put(tier, name);
  const hung = [0, 1, 2, 3, 40, 89];
  const mends = hung.map((name) => makeHang(tier, name));
  const loaded: number[] = [];
  const queue = new TransferQueue<number, string>({
    concurrency: 2,
    clock: systemClock,
    timers: systemTimers,
    run: async (name, signal) => {
      const into = block();
      const reason = await tier.load(suiteKey(name), into, signal);
      expect(into).toEqual(suiteBytes(suiteKey(name)));
      loaded.push(name);
      return reason;
    },
    onChange: () => undefined,
  });
  const id = 1 as TransferId;
  queue.submit(id, names, { timeoutMs: 1e9 });
  await until(() => loaded.length === 84 && tier.busyCount === 6);
  queue.cancel(id);
  expect(queue.takeReport().failures.map(({ item }) => item)).toEqual(hung);
  await until(() => tier.stuckCount === 6);
  for (const mend of mends) mend();
  await queue.whenDrained();
  await until(() => tier.stuckCount === 0);
  for (const name of hung) expect(await tier.load(suiteKey(name), block(), never)).toBeUndefined();
  await tier.close();
});

it('one transfer whose blocks hang leaves threads for other transfers', async () => {
  const tier = await open({ threads: 3, startThreads: 3 });
  const names = Array.from({ length: 30 }, (_, i) => i);
  for (const name of names) await put(tier, name);
  const mends = names.slice(1).map((name) => makeHang(tier, name));
  const controller = new AbortController();
  const loads = names
    .slice(1)
    .map((name) => tier.load(suiteKey(name), block(), controller.signal).catch(() => 'aborted'));
  await until(() => tier.busyCount === 15);
  controller.abort();
  expect(new Set(await Promise.all(loads))).toEqual(new Set(['aborted']));
  expect(tier.stuckCount).toBe(15);
  expect(await tier.load(suiteKey(0), block(), never)).toBeUndefined();
  for (const mend of mends) mend();
  await until(() => tier.stuckCount === 0);
  await tier.close();
});

it('with too many hung calls, calls fail at once until one of them returns', async () => {
  const tier = await open({ threads: 2 });
  for (let name = 0; name < 17; name++) await put(tier, name);
  const mends: (() => void)[] = [];
  for (let name = 0; name < 16; name++) {
    mends.push(makeHang(tier, name));
    const controller = new AbortController();
    const load = tier.load(suiteKey(name), block(), controller.signal);
    await until(() => tier.busyCount === 1);
    controller.abort(new Error('the deadline'));
    await expect(load).rejects.toThrow('the deadline');
  }
  expect(tier.stuckCount).toBe(16);
  expect(blockedThreadCount()).toBe(16);
  await expect(tier.load(suiteKey(16), block(), never)).rejects.toMatchObject({ code: 'KVASIR_TIER_FAILED' });
  await expect(tier.has([suiteKey(16)], never)).rejects.toMatchObject({ code: 'KVASIR_TIER_FAILED' });
  mends.shift()!();
  await until(() => tier.stuckCount === 15);
  expect(await tier.load(suiteKey(16), block(), never)).toBeUndefined();
  for (const mend of mends) mend();
  await until(() => tier.stuckCount === 0);
  expect(blockedThreadCount()).toBe(0);
  await tier.close();
});

it('closes at once while calls hang', async () => {
  const tier = await open();
  await put(tier, 1);
  const mend = makeHang(tier, 1);
  const controller = new AbortController();
  const load = tier.load(suiteKey(1), block(), controller.signal).catch(() => 'aborted');
  await until(() => tier.busyCount === 1);
  controller.abort();
  expect(await load).toBe('aborted');
  await tier.close();
  expect(tier.stuckCount).toBe(1);
  mend();
  await until(() => blockedThreadCount() === 0);
});

it('a directory that does not answer at the start is an error after a timeout', async () => {
  // The thread that asks the directory takes longer than this to start.
  await expect(open({ openTimeoutMs: 0 })).rejects.toMatchObject({
    code: 'KVASIR_STORAGE_UNUSABLE',
    message: expect.stringContaining('no answer in 0 s'),
  });
});

it('if the record of another model is a FIFO, the tier opens and counts other blocks without the record', async () => {
  const at = join(root, 'no-neighbour');
  const other = await open({ root: at, identity: { ...suiteIdentity, fingerprint: 'another model' } });
  await put(other, 1);
  await other.close();
  const record = join(other.path, 'config.json');
  rmSync(record);
  makeFifo(record);
  const tier = await open({ root: at });
  expect(tier.events).toEqual([]);
  expect(await put(tier, 1)).toBe('stored');
  // The model is unknown, because its record is not read.
  expect(await tier.countOthers()).toMatchObject({ folders: 1, blocks: 1, models: ['unknown'] });
  await tier.close();
});

it('a slow read is loaded when it is complete, and other blocks are loaded meanwhile', async () => {
  const tier = await open();
  for (const name of [1, 2]) await put(tier, name);
  const whole = await readFile(tier.fileOf(suiteKey(1)));
  const path = tier.fileOf(suiteKey(1));
  renameSync(path, `${path}.kept`);
  makeFifo(path);
  const into = block();
  const load = tier.load(suiteKey(1), into, never);
  const end = openSync(path, 'r+');
  for (let at = 0; at < whole.length; at += 400) {
    writeSync(end, whole.subarray(at, at + 400));
    expect(await tier.load(suiteKey(2), block(), never)).toBeUndefined();
  }
  expect(await load).toBeUndefined();
  closeSync(end);
  expect(into).toEqual(suiteBytes(suiteKey(1)));
  await tier.close();
});
