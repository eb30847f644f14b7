import { spawnSync } from 'node:child_process';
import { existsSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { pathToFileURL } from 'node:url';
import { afterAll, afterEach, beforeAll, describe, expect, it, onTestFinished } from 'vitest';
import { buildCommand } from '../../test/support/cli-process.ts';
import { ManualTime } from '../../test/support/manual-time.ts';
import { needs } from '../../test/support/needs.ts';
import { until } from '../../test/support/until.ts';
import { assertDefined } from './assert.ts';
import { Fifo } from './fifo.ts';
import { JobThread, type JobThreadOptions } from './job-thread.ts';

const folder = mkdtempSync(join(tmpdir(), 'kvasir-jobs-'));
const [entry, broken, hung] = ['jobs.mjs', 'broken', 'hung'].map((name) => join(folder, name)) as [
  string,
  string,
  string,
];

/** What a thread does, by the names of the jobs. The answer to most is the thread's id. */
const source = `
import { existsSync, readSync, openSync } from 'node:fs';
import { threadId } from 'node:worker_threads';
import { serveCalls } from ${JSON.stringify(pathToFileURL(resolve('dist/src/base/call-thread.js')).href)};
if (existsSync(${JSON.stringify(broken)})) throw new Error('broken at the start, at /a/path');
while (existsSync(${JSON.stringify(hung)}));
serveCalls(() => ({ name, memory, path }) => {
  if (memory !== undefined) Atomics.add(new Int32Array(memory), 0, 1);
  if (name === 'loop') for (;;);
  if (name === 'wait') Atomics.wait(new Int32Array(memory), 1, 0);
  if (name === 'block') readSync(openSync(path, 'r'), new Uint8Array(1));
  if (name === 'exit') process.exit(3);
  if (name === 'grow') for (const all = []; ; ) all.push(new Array(1000).fill({}));
  if (name === 'fail') throw Object.assign(new Error('of the job'), { code: 'OF_JOB' });
  return threadId;
});`;

interface Work {
  readonly name: string;
  readonly memory?: SharedArrayBuffer;
  readonly path?: string;
}

let time = new ManualTime();
const open: JobThread<Work, number>[] = [];
const fifos: Fifo[] = [];

/** The query makes threads of another kind in each test, so none has a spare thread of another. */
let serial = 0;
function newThread(options: Partial<JobThreadOptions> = {}): JobThread<Work, number> {
  const url = new URL(`?${serial++}`, pathToFileURL(entry));
  const thread = new JobThread<Work, number>({ entry: url, name: 'test', work: 'Testing', timers: time, ...options });
  open.push(thread);
  return thread;
}

const budget = { budgetMs: 1000 };

/** A job, and whether it has begun on the thread. */
function begun(name: string, path?: string): { readonly work: Work; begin(): Promise<void>; end(): void } {
  const memory = new SharedArrayBuffer(8);
  const words = new Int32Array(memory);
  return {
    work: { name, memory, ...(path === undefined ? {} : { path }) },
    begin: () => until(() => Atomics.load(words, 0) > 0),
    end: () => {
      Atomics.store(words, 1, 1);
      Atomics.notify(words, 1);
    },
  };
}

/** A job in a system call, which no other thread can interrupt. */
function blocking() {
  const fifo = assertDefined(Fifo.make(join(folder, `${serial++}.fifo`)), 'this system has FIFOs');
  fifos.push(fifo);
  return { ...begun('block', fifo.path), end: () => fifo.release() };
}

const hasFifos = spawnSync('mkfifo', ['--version']).status === 0;

beforeAll(async () => {
  await buildCommand();
  writeFileSync(entry, source);
}, 60_000);
afterEach(async () => {
  for (const path of [broken, hung]) rmSync(path, { force: true });
  for (const fifo of fifos) fifo.release();
  await Promise.all(open.splice(0).map((thread) => thread.close()));
  for (const fifo of fifos.splice(0)) fifo.close();
  time = new ManualTime();
});
afterAll(() => rmSync(folder, { recursive: true }));

describe('jobs', () => {
  it('run in order on one thread, which a later owner gets', async () => {
    const thread = newThread();
    const order: number[] = [];
    const jobs = [0, 1, 2].map((at) => thread.run({ name: 'id' }, budget).finally(() => order.push(at)));
    const ids = new Set(await Promise.all(jobs));
    expect([ids.size, order]).toEqual([1, [0, 1, 2]]);
    await expect(thread.run({ name: 'fail' }, budget)).rejects.toMatchObject({ code: 'OF_JOB', message: 'of the job' });
    await expect(thread.run({ name: 'id', memory: (() => 0) as never }, budget)).rejects.toThrow(DOMException);
    expect(ids).toContain(await thread.run({ name: 'id' }, budget));
    expect(time.pending).toBe(0);
    await thread.close();
    serial--;
    expect(ids).toContain(await newThread().run({ name: 'id' }, budget));
    await expect(thread.run({ name: 'id' }, budget)).rejects.toThrow('closed');
  });

  it('that are aborted while they wait do not run', async () => {
    const thread = newThread();
    const first = begun('wait');
    const running = thread.run(first.work, budget);
    const controller = new AbortController();
    const second = begun('id');
    const waiting = thread.run(second.work, { ...budget, signal: controller.signal });
    controller.abort(new Error('gone'));
    await expect(waiting).rejects.toThrow('gone');
    await expect(thread.run(second.work, { ...budget, signal: controller.signal })).rejects.toThrow('gone');
    first.end();
    expect(await thread.run({ name: 'id' }, budget)).toBe(await running);
    expect(new Int32Array(second.work.memory!)[0]).toBe(0);
  });

  it('that are aborted while they run are stopped, unless they end soon', async () => {
    const thread = newThread();
    const controller = new AbortController();
    const { signal } = controller;
    const first = begun('wait');
    const aborted = thread.run(first.work, { ...budget, signal });
    const next = thread.run({ name: 'id' }, budget);
    await first.begin();
    controller.abort(new Error('gone'));
    await expect(aborted).rejects.toThrow('gone');
    first.end();
    const id = await next;

    const later = new AbortController();
    const endless = begun('loop');
    const looping = thread.run(endless.work, { ...budget, signal: later.signal });
    const afterwards = thread.run({ name: 'id' }, budget);
    await endless.begin();
    later.abort(new Error('gone too'));
    await expect(looping).rejects.toThrow('gone too');
    time.advance(50);
    expect(await afterwards).not.toBe(id);
  });

  it('that run longer than their budget are stopped with an error, and the next one has its whole budget', async () => {
    const thread = newThread();
    const endless = begun('loop');
    const looping = thread.run(endless.work, { budgetMs: 1500 });
    const afterwards = thread.run({ name: 'id' }, budget);
    await endless.begin();
    time.advance(1499);
    time.advance(1);
    await expect(looping).rejects.toMatchObject({
      code: 'KVASIR_JOB_STOPPED',
      retryable: true,
      message: expect.stringContaining('Testing was stopped because it took longer than 1.5 s.'),
    });
    expect(await afterwards).toBeGreaterThan(0);
  });

  it('that need too much memory are stopped with an error', async () => {
    const thread = newThread({ heapMaxMib: 24 });
    await expect(thread.run({ name: 'grow' }, budget)).rejects.toMatchObject({
      code: 'KVASIR_JOB_STOPPED',
      message: expect.stringContaining('because it needed more than 24 MiB of memory'),
    });
    expect(await thread.run({ name: 'id' }, budget)).toBeGreaterThan(0);
  });

  it('after one that ends the thread run on another thread', async () => {
    const thread = newThread();
    const [dead, next] = [thread.run({ name: 'exit' }, budget), thread.run({ name: 'id' }, budget)];
    await expect(dead).rejects.toMatchObject({ code: 'KVASIR_THREAD_ENDED' });
    expect(await next).toBeGreaterThan(0);
  });

  it(
    'in a native call do not delay others; with too many of them, the next waits',
    needs(hasFifos, 'no FIFOs'),
    async () => {
      const thread = newThread();
      const blocked = [blocking(), blocking(), blocking()];
      const ids: number[] = [];
      for (const job of blocked) {
        const running = thread.run(job.work, budget);
        await job.begin();
        time.advance(1000);
        await expect(running).rejects.toMatchObject({ code: 'KVASIR_JOB_STOPPED' });
        if (job !== blocked[2]) ids.push(await thread.run({ name: 'id' }, budget));
      }
      expect(new Set(ids).size).toBe(2);
      let isDone: boolean = false;
      const next = thread.run({ name: 'id' }, budget).finally(() => {
        isDone = true;
      });
      for (let turn = 0; turn < 20; turn++) await new Promise(setImmediate);
      expect(isDone).toBe(false);
      blocked[0]!.end();
      expect(ids).not.toContain(await next);
    },
  );
});

describe('a thread that cannot start', () => {
  it('fails the jobs that wait, and later jobs try again', async () => {
    const thread = newThread();
    writeFileSync(broken, '');
    const jobs = [thread.run({ name: 'id' }, budget), thread.run({ name: 'id' }, budget)];
    for (const job of jobs) {
      await expect(job).rejects.toMatchObject({ code: 'KVASIR_THREAD_UNAVAILABLE', httpStatus: 503, retryable: true });
      // Clients see the message.
      await expect(job).rejects.not.toThrow('/a/path');
    }
    expect(thread.trouble).toMatch(/^Testing is not possible now: the thread for it cannot start \(.*\)\.$/);
    rmSync(broken);
    expect(await thread.run({ name: 'id' }, budget)).toBeGreaterThan(0);
    expect(thread.trouble).toBeUndefined();
    expect(time.pending).toBe(0);
  });

  it('is tried again without jobs if it is to be kept, and is started again when it ends', async () => {
    const thread = newThread();
    writeFileSync(broken, '');
    let started = 0;
    const count = (): void => void started++;
    process.on('worker', count);
    onTestFinished(() => void process.off('worker', count));
    await thread.keepStarted();
    await until(() => thread.trouble !== undefined && time.pending === 1);
    for (let turn = 0; turn < 20; turn++) await new Promise(setImmediate);
    expect(started).toBe(1);
    rmSync(broken);
    time.advance(1000);
    await until(() => thread.trouble === undefined);
    expect(started).toBe(2);
    const id = await thread.run({ name: 'id' }, budget);
    await expect(thread.run({ name: 'exit' }, budget)).rejects.toThrow();
    await thread.keepStarted();
    expect(await thread.run({ name: 'id' }, budget)).not.toBe(id);
  });

  it('is given up if the start hangs', async () => {
    const thread = newThread({ startMaxMs: 3000 });
    writeFileSync(hung, '');
    const job = thread.run({ name: 'id' }, budget);
    time.advance(3000);
    await expect(job).rejects.toMatchObject({ code: 'KVASIR_THREAD_UNAVAILABLE' });
    expect(thread.trouble).toContain('it has not started for 3 s');
    rmSync(hung);
    expect(await thread.run({ name: 'id' }, budget)).toBeGreaterThan(0);
  });
});

describe('close', () => {
  it.each(['loop', 'wait'])('rejects the jobs, and ends a thread that would never end (%s)', async (name) => {
    const thread = newThread();
    const endless = begun(name);
    const jobs = [thread.run(endless.work, budget), thread.run({ name: 'id' }, budget)];
    await endless.begin();
    const closing = thread.close();
    for (const job of jobs) await expect(job).rejects.toThrow('closed');
    await closing;
    expect(time.pending).toBe(0);
  });

  it('ends a thread that starts', async () => {
    const thread = newThread();
    const job = thread.run({ name: 'id' }, budget);
    const closing = thread.close();
    await expect(job).rejects.toThrow('closed');
    await closing;
  });

  it('resolves after a native call, whose memory can then be freed', needs(hasFifos, 'no FIFOs'), async () => {
    const thread = newThread();
    const job = blocking();
    const running = thread.run(job.work, budget);
    await job.begin();
    let isClosed: boolean = false;
    const closing = thread.close().finally(() => {
      isClosed = true;
    });
    await expect(running).rejects.toThrow('closed');
    for (let turn = 0; turn < 20; turn++) await new Promise(setImmediate);
    expect(isClosed).toBe(false);
    job.end();
    await closing;
  });
});

it('the test leaves no file that breaks threads', () => expect([broken, hung].map(existsSync)).toEqual([false, false]));
