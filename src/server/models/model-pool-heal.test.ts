import { afterEach, describe, expect, it } from 'vitest';
import { type PoolOptions, poolHere } from '../../../test/support/model-processes.ts';
import { until } from '../../../test/support/until.ts';
import { poolHealth } from './pool-health.ts';
import { neverLoadedMax } from './pooled-model.ts';

const cleanups: (() => unknown)[] = [];
afterEach(async () => {
  for (const cleanup of cleanups.splice(0)) await cleanup();
});
function start(options: PoolOptions = {}) {
  const here = poolHere(options);
  cleanups.push(here.close);
  return here;
}
type Started = ReturnType<typeof start>;

describe('a model whose engine breaks', () => {
  it('fails at once, health names it, and the next request loads it when its process has ended', async () => {
    const { pool, states, processOf, started } = start();
    using lease = (await pool.acquire('a'))!;
    expect(poolHealth(pool)).toEqual({ status: 'ok', models: { loaded: 1, loading: 0, failed: 0 } });
    processOf('a')!.isBusy = true;
    processOf('a')!.breaks('no memory');
    expect(await states()).toEqual({ a: 'failed', b: 'unloaded' });
    const message = 'The engine of the model a stopped after an error: no memory.';
    expect(poolHealth(pool)).toEqual({
      status: 'degraded',
      message,
      models: { loaded: 0, loading: 0, failed: 1 },
      troubles: [{ model: 'a', state: 'failed', message }],
    });
    // The process still has its memory, and answers its requests.
    const again = pool.acquire('a');
    await until(() => pool.counts().waiting === 1);
    expect([started.length, pool.counts().usedBytes]).toEqual([1, 1]);
    processOf('a')!.kill();
    (await again)[Symbol.dispose]();
    lease[Symbol.dispose]();
    expect([started.length, pool.counts()]).toEqual([2, { usedBytes: 1, waiting: 0, open: 0 }]);
    expect(poolHealth(pool)).toMatchObject({ status: 'ok' });
  });

  it('a late message about an engine that is gone changes nothing', async () => {
    const { pool, states, processOf } = start();
    (await pool.acquire('a'))[Symbol.dispose]();
    const first = processOf('a')!;
    first.kill();
    await until(() => pool.counts().usedBytes === 0);
    (await pool.acquire('a'))[Symbol.dispose]();
    first.breaks('late');
    expect(await states()).toMatchObject({ a: 'loaded' });
  });
});

/** The process of the model `a` serves for a time, and ends. */
async function endAfter({ pool, processOf, time }: Started, servedMs: number): Promise<void> {
  (await pool.acquire('a'))[Symbol.dispose]();
  time.advance(servedMs);
  processOf('a')!.kill();
  await until(() => pool.all.every(({ entry, bytes }) => entry.name !== 'a' || bytes === undefined));
}

describe('a model whose processes end again and again', () => {
  const paused = { code: 'KVASIR_MODEL_PAUSED', httpStatus: 503, retryable: true };

  it('is loaded three times within a minute of work, and after a pause once more', async () => {
    const here = start();
    const { pool, time, started } = here;
    for (let i = 0; i < 3; i++) await endAfter(here, 10_000);
    await expect(pool.acquire('a')).rejects.toMatchObject({ ...paused, fields: { retryAfterSeconds: 30 } });
    await pool.acquire('b');
    time.advance(29_001);
    await expect(pool.acquire('a')).rejects.toMatchObject({ ...paused, fields: { retryAfterSeconds: 1 } });
    expect(started.length).toBe(4);
    time.advance(1000);
    await endAfter(here, 0);
    await expect(pool.acquire('a')).rejects.toMatchObject(paused);
    // It served well for a minute, so it may fail again.
    time.advance(30_000);
    await endAfter(here, 60_000);
    await endAfter(here, 0);
    await endAfter(here, 0);
    expect(started.length).toBe(8);
  });

  it('counts loads whose process ends, and refuses the requests that wait', async () => {
    const { pool, started } = start({ loads: false });
    for (let i = 1; i <= 3; i++) {
      const waits = pool.acquire('a');
      await until(() => started.length === i);
      started.at(-1)!.kill();
      await expect(waits).rejects.toMatchObject({
        code: 'KVASIR_MODEL_NOT_STARTED',
        fields: { code: 'KVASIR_MODEL_PROCESS_ENDED' },
      });
      await until(() => pool.counts().usedBytes === 0);
    }
    await expect(pool.acquire('a')).rejects.toMatchObject(paused);
  });

  it.each(['load', 'unload'] as const)('an operator ends the pause: %s', async (order) => {
    const here = start();
    const { pool, states } = here;
    for (let i = 0; i < 3; i++) await endAfter(here, 0);
    await pool[order]('a');
    if (order === 'unload') {
      expect(await states()).toMatchObject({ a: 'unloaded' });
      expect(poolHealth(pool)).toMatchObject({ status: 'ok' });
    }
    (await pool.acquire('a'))[Symbol.dispose]();
    expect(await states()).toMatchObject({ a: 'loaded' });
  });
});

it('names of models that were never loaded are forgotten, the oldest first', async () => {
  const names = Array.from({ length: neverLoadedMax + 10 }, (_, i) => `m${i}`);
  const { pool } = start({ models: { ...Object.fromEntries(names.map((name) => [name, 3])), good: 1, other: 1 } });
  (await pool.acquire('good'))[Symbol.dispose]();
  await pool.unload('good');
  using _ = await pool.acquire('other');
  for (const name of names) await expect(pool.acquire(name)).rejects.toMatchObject({ httpStatus: 503 });
  const known = pool.all.map(({ entry }) => entry.name);
  expect(known).toEqual(['good', 'other', ...names.slice(10)]);
  await expect(pool.acquire('m0')).rejects.toMatchObject({ httpStatus: 503 });
  expect(pool.totals.length).toBe(neverLoadedMax + 2);
});

describe('the health of several models', () => {
  it('names a process that does not answer', async () => {
    const { pool, processOf } = start();
    (await pool.acquire('a'))[Symbol.dispose]();
    processOf('a')!.silentMs = 3000;
    const message = 'The process of the model a has not answered for 3 s.';
    expect(poolHealth(pool)).toEqual({
      status: 'degraded',
      message,
      models: { loaded: 1, loading: 0, failed: 0 },
      troubles: [{ model: 'a', state: 'silent', message }],
    });
  });

  it('names at most ten models', async () => {
    const names = Array.from({ length: 13 }, (_, i) => `m${i}`);
    const { pool } = start({ models: Object.fromEntries(names.map((name) => [name, 3])) });
    for (const name of names) await expect(pool.acquire(name)).rejects.toMatchObject({ httpStatus: 503 });
    expect(poolHealth(pool)).toMatchObject({
      models: { failed: 13 },
      troubles: { length: 10 },
      message: expect.stringMatching(/ 3 other models do not serve either\.$/),
    });
  });
});

it('a process that cannot be started gives its memory back', async () => {
  const { pool, failNextStart } = start();
  failNextStart(new Error('EMFILE'));
  await expect(pool.acquire('a')).rejects.toMatchObject({ code: 'KVASIR_MODEL_NOT_STARTED' });
  expect(pool.counts().usedBytes).toBe(0);
  (await pool.acquire('a'))[Symbol.dispose]();
});

it('the end of the server kills processes that load', async () => {
  const { pool, started } = start({ loads: false });
  const waits = pool.acquire('a');
  await until(() => started.length === 1);
  const drained = pool.drain();
  await expect(waits).rejects.toMatchObject({ code: 'KVASIR_ENGINE_CLOSED' });
  await drained;
  expect(started[0]!.wasStopped).toBe(false);
});

it('a load that fails while its file is rewritten says so', async () => {
  const { pool, started, changed } = start({ loads: false });
  const waits = pool.acquire('a');
  await until(() => started.length === 1);
  changed.add('a');
  started[0]!.fail(new Error('a strange error'));
  await expect(waits).rejects.toMatchObject({
    code: 'KVASIR_MODEL_NOT_STARTED',
    fields: { code: 'KVASIR_MODEL_FILE_CHANGED' },
  });
});
