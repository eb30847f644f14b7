import { afterEach, describe, expect, it } from 'vitest';
import { type PoolOptions, poolHere } from '../../../test/support/model-processes.ts';
import { until } from '../../../test/support/until.ts';

const cleanups: (() => unknown)[] = [];
afterEach(async () => {
  for (const cleanup of cleanups.splice(0)) await cleanup();
});
function start(options: PoolOptions = {}) {
  const here = poolHere(options);
  cleanups.push(here.close);
  return here;
}

describe('a pool of models', () => {
  it('loads a model once for all requests that ask for it, by any of its names', async () => {
    const { pool, started, states } = start();
    const leases = await Promise.all(['a', 'a-alias', 'a'].map((name) => pool.acquire(name)));
    expect(started.length).toBe(1);
    expect(new Set(leases.map(({ socketPath }) => socketPath)).size).toBe(1);
    expect(await states()).toEqual({ a: 'loaded', b: 'unloaded' });
    await expect(pool.acquire('z')).rejects.toMatchObject({ code: 'KVASIR_MODEL_UNKNOWN', httpStatus: 404 });
  });

  it('unloads the idle model that was not used for the longest time, when memory is needed', async () => {
    const { pool, states, started } = start({ models: { a: 1, b: 1, c: 1 } });
    (await pool.acquire('a'))[Symbol.dispose]();
    (await pool.acquire('b'))[Symbol.dispose]();
    (await pool.acquire('a'))[Symbol.dispose]();
    await pool.acquire('c');
    expect(await states()).toEqual({ a: 'loaded', b: 'unloaded', c: 'loaded' });
    expect(started.length).toBe(3);
    expect(pool.counts().usedBytes).toBe(2);
  });

  it('unloads for the memory of the GPU only models that have some of it', async () => {
    const models = { cpu: 1, first: [1, 2], second: [1, 1], third: [1, 1] } as const;
    const { pool, states } = start({ models, memoryMaxBytes: 9, gpuMaxBytes: 3 });
    for (const name of ['cpu', 'first', 'second']) (await pool.acquire(name))[Symbol.dispose]();
    expect(await states()).toEqual({ cpu: 'loaded', first: 'loaded', second: 'loaded', third: 'unloaded' });
    (await pool.acquire('third'))[Symbol.dispose]();
    expect(await states()).toEqual({ cpu: 'loaded', first: 'unloaded', second: 'loaded', third: 'loaded' });
    expect(pool.all.find(({ entry }) => entry.name === 'third')).toMatchObject({ bytes: 1, gpuBytes: 1 });
    // The memory of `first` is free again, and not counted twice.
    (await pool.acquire('first'))[Symbol.dispose]();
    expect(Object.values(await states()).filter((state) => state === 'loaded')).toHaveLength(3);
    expect(pool.counts().usedBytes).toBe(3);
  });

  it('a load that needs memory gets it when the requests of a model have ended, before later requests for that model', async () => {
    const { pool, states } = start({ models: { a: 2, b: 2 } });
    const first = await pool.acquire('a');
    const order: string[] = [];
    const b = pool.acquire('b').then((lease) => {
      order.push('b');
      lease[Symbol.dispose]();
    });
    await until(() => pool.counts().waiting === 1);
    const again = pool.acquire('a').then((lease) => {
      order.push('a');
      lease[Symbol.dispose]();
    });
    await until(() => pool.counts().waiting === 2);
    expect(await states()).toEqual({ a: 'loaded', b: 'loading' });
    first[Symbol.dispose]();
    await Promise.all([b, again]);
    expect(order).toEqual(['b', 'a']);
  });

  it('requests for more models than memory has room for are all served', async () => {
    const names = ['a', 'b', 'c', 'd', 'e'];
    const { pool } = start({ models: Object.fromEntries(names.map((name) => [name, 1])) });
    const served = Array.from({ length: 50 }, async (_, i) => {
      using lease = await pool.acquire(names[i % 5]!);
      expect(pool.counts().usedBytes).toBeLessThanOrEqual(2);
      await new Promise((resolve) => setImmediate(resolve));
      return lease.model;
    });
    expect(await Promise.all(served)).toEqual(Array.from({ length: 50 }, (_, i) => names[i % 5]));
  });

  it('refuses a model that needs more memory than there is, and says how much', async () => {
    const { pool, states } = start({ models: { a: 3, b: 1 } });
    await expect(pool.acquire('a')).rejects.toMatchObject({
      code: 'KVASIR_MODEL_OVER_MEMORY',
      fields: { bytes: 3, limitBytes: 2 },
    });
    expect(await states()).toEqual({ a: 'failed', b: 'unloaded' });
    await pool.acquire('b');
  });

  it('no model is unloaded for a request whose client has left before its turn', async () => {
    const { pool, states } = start({ models: { a: 2, b: 2 } });
    const first = await pool.acquire('a');
    const client = new AbortController();
    const b = pool.acquire('b', client.signal);
    await until(() => pool.counts().waiting === 1);
    client.abort();
    await expect(b).rejects.toMatchObject({ code: 'KVASIR_CLIENT_GONE' });
    // The model that was to leave takes requests again.
    (await pool.acquire('a'))[Symbol.dispose]();
    first[Symbol.dispose]();
    expect(await states()).toEqual({ a: 'loaded', b: 'unloaded' });
  });

  it('a request waits for a load up to a limit', async () => {
    const { pool, time, started, processOf } = start({ loads: false });
    const waits = pool.acquire('a');
    await until(() => started.length === 1);
    processOf('a')!.progress({ phase: 'weights', message: 'The server loads a: 43 %.', retryAfterSeconds: 7 });
    time.advance(60_000);
    await expect(waits).rejects.toMatchObject({
      code: 'KVASIR_MODEL_LOADING',
      message: expect.stringContaining('43 %'),
      fields: { retryAfterSeconds: 7 },
    });
    // The load goes on.
    await processOf('a')!.load();
    await pool.acquire('a');
    expect(started.length).toBe(1);
  });

  it('a failed load fails all requests that wait for it, and the next request tries again', async () => {
    const { pool, started, states, processOf } = start({ loads: false });
    const both = Promise.allSettled([pool.acquire('a'), pool.acquire('a')]);
    await until(() => started.length === 1);
    started[0]!.fail(new Error('broken'));
    const failed = { status: 'rejected', reason: expect.objectContaining({ code: 'KVASIR_MODEL_NOT_STARTED' }) };
    expect(await both).toEqual([failed, failed]);
    expect(await states()).toEqual({ a: 'failed', b: 'unloaded' });
    const again = pool.acquire('a');
    await until(() => started.length === 2);
    await processOf('a')!.load();
    await again;
  });

  it('a process that ends gives its memory back, leaves other models alone, and is started again', async () => {
    const { pool, states, processOf, started, lines } = start();
    const [a] = await Promise.all([pool.acquire('a'), pool.acquire('b')]);
    processOf('a')!.kill();
    await until(() => pool.counts().usedBytes === 1);
    expect(await states()).toEqual({ a: 'failed', b: 'loaded' });
    expect(lines).toContain('the process of the model a died of SIGKILL');
    a![Symbol.dispose]();
    await pool.acquire('a');
    expect(started.length).toBe(3);
  });

  it('an idle model is unloaded after its time; one whose engine has work is not idle', async () => {
    const { pool, states, time, processOf } = start({ idleTimeoutMs: 1000 });
    const lease = await pool.acquire('a');
    time.advance(5000);
    expect(await states()).toMatchObject({ a: 'loaded' });
    processOf('a')!.isBusy = true;
    lease[Symbol.dispose]();
    time.advance(5000);
    expect(await states()).toMatchObject({ a: 'loaded' });
    processOf('a')!.idle();
    time.advance(999);
    expect(await states()).toMatchObject({ a: 'loaded' });
    time.advance(1);
    expect(await states()).toMatchObject({ a: 'unloaded' });
  });

  it('a model whose file is gone stays in the list while it is loaded', async () => {
    const { pool, states, entries } = start();
    (await pool.acquire('a'))[Symbol.dispose]();
    entries.delete('a');
    (await pool.acquire('a'))[Symbol.dispose]();
    expect(await states()).toEqual({ a: 'loaded', b: 'unloaded' });
    await pool.unload('a');
    await until(() => pool.counts().usedBytes === 0);
    expect(await states()).toEqual({ b: 'unloaded' });
    await expect(pool.acquire('a')).rejects.toMatchObject({ httpStatus: 404 });
  });
});
