import { afterEach, describe, expect, it } from 'vitest';
import { gate } from '../../../test/support/chat-page.ts';
import { type PoolOptions, serveModelsHere } from '../../../test/support/model-processes.ts';
import { until } from '../../../test/support/until.ts';
import type { ServerOptions } from '../server.ts';

const cleanups: (() => unknown)[] = [];
afterEach(async () => {
  for (const cleanup of cleanups.splice(0).reverse()) await cleanup();
});
async function start(options: PoolOptions = {}, serverOptions: Partial<ServerOptions> = {}) {
  const here = await serveModelsHere(options, serverOptions);
  cleanups.push(here.close);
  const send = async (method: string, path: string, headers: Record<string, string> = {}) => {
    const answer = await fetch(here.origin + path, { method, headers });
    return { status: answer.status, body: (await answer.json()) as Record<string, unknown> };
  };
  const respond = async (body: object, headers: Record<string, string> = {}) => {
    const answer = await here.post('/v1/responses', { model: 'a', max_output_tokens: 2, ...body }, headers);
    return (await answer.json()) as { readonly id: string; readonly status: string; readonly error?: object };
  };
  const unload = async () => {
    await here.pool.unload('a');
    await until(() => here.pool.all.every(({ entry, bytes }) => entry.name !== 'a' || bytes === undefined));
  };
  return { ...here, send, respond, unload };
}

describe('a stored response of a model', () => {
  it('is read, and continued, after the model was unloaded', async () => {
    const { send, respond, post, unload, processOf, started } = await start();
    const first = await respond({ input: 'one' });
    const second = await respond({ input: 'two', previous_response_id: first.id });
    const before = await send('GET', `/v1/responses/${second.id}`);
    await unload();
    expect(await send('GET', `/v1/responses/${second.id}`)).toEqual(before);
    expect((await send('GET', `/responses/${second.id}`)).status).toBe(200);
    expect((await send('GET', `/v1/responses/${second.id}/input_items`)).body).toMatchObject({
      data: [{ content: [{ text: 'two' }] }],
    });
    expect((await send('GET', `/v1/responses/${second.id}?stream=true`)).status).toBe(400);
    expect((await post(`/v1/responses/${second.id}/cancel`, {})).status).toBe(400);
    expect(started.length).toBe(1);
    expect(await respond({ input: 'three', previous_response_id: second.id })).toMatchObject({ status: 'incomplete' });
    expect(started.length).toBe(2);
    // The prompt of the conversation so far.
    expect(processOf('a')!.engine.requests.length).toBe(1);
  });

  it('is read while its process is killed or hangs', async () => {
    const { send, respond, processOf, pool } = await start();
    const { id } = await respond({ input: 'x' });
    processOf('a')!.kill();
    await until(() => pool.counts().usedBytes === 0);
    expect((await send('GET', `/v1/responses/${id}`)).status).toBe(200);
    const next = await respond({ input: 'x' });
    await processOf('a')!.hang();
    expect((await send('GET', `/v1/responses/${next.id}`)).status).toBe(200);
  });

  it('in the background is read after the model was displaced', async () => {
    const steps = gate(1);
    const { send, respond, post, states } = await start({
      models: { a: 2, b: 2 },
      engine: { beforeStep: steps.beforeStep },
    });
    const { id } = await respond({ input: 'x', background: true });
    expect((await send('GET', `/v1/responses/${id}`)).status).toBe(200);
    steps.open();
    expect((await post('/v1/completions', { model: 'b', prompt: 'x', max_tokens: 1 })).status).toBe(200);
    expect(await states()).toEqual({ a: 'unloaded', b: 'loaded' });
    expect((await send('GET', `/v1/responses/${id}`)).body).toMatchObject({ id, status: 'incomplete' });
  });

  it.each(['loaded', 'unloaded'])('is gone after it was deleted while the model was %s', async (state) => {
    const { send, respond, unload } = await start();
    const { id } = await respond({ input: 'x' });
    if (state === 'unloaded') await unload();
    expect(await send('DELETE', `/v1/responses/${id}`)).toMatchObject({ status: 200, body: { deleted: true } });
    expect((await send('GET', `/v1/responses/${id}`)).status).toBe(404);
    expect(await respond({ input: 'y', previous_response_id: id })).toMatchObject({
      error: { code: 'previous_response_not_found' },
    });
    expect((await send('GET', `/v1/responses/${id}`)).status).toBe(404);
    expect((await send('DELETE', `/v1/responses/${id}`)).status).toBe(404);
  });

  it('that is deleted while the model loads is forgotten by its process', async () => {
    const { send, respond, unload, post, started } = await start({ loads: false });
    const first = respond({ input: 'x' });
    await until(() => started.length === 1);
    await started[0]!.load();
    const { id } = await first;
    await unload();
    await post('/models/load', { model: 'a' });
    await until(() => started.length === 2);
    expect((await send('DELETE', `/v1/responses/${id}`)).status).toBe(200);
    await started[1]!.load();
    expect((await send('GET', `/v1/responses/${id}`)).status).toBe(404);
    expect(await respond({ input: 'y', previous_response_id: id })).toHaveProperty('error');
  });

  it('is only of its key', async () => {
    const keys = { apiKey: ['one', 'two'] };
    const { send, respond, pool } = await start({ engine: keys }, keys);
    const as = (key: string) => ({ authorization: `Bearer ${key}` });
    const { id } = await respond({ input: 'x' }, as('one'));
    await pool.unload('a');
    expect((await send('GET', `/v1/responses/${id}`, as('two'))).status).toBe(404);
    expect((await send('DELETE', `/v1/responses/${id}`, as('two'))).status).toBe(404);
    expect((await send('GET', `/v1/responses/${id}`, as('one'))).status).toBe(200);
    expect(await respond({ input: 'x', previous_response_id: id }, as('two'))).toHaveProperty('error');
    expect(await respond({ input: 'x', previous_response_id: id }, as('one'))).toMatchObject({ status: 'incomplete' });
  });

  it('is not kept without the conversation before it', async () => {
    const { send, respond, pool, unload } = await start({ responseStoreMaxBytes: 12_000 });
    const first = await respond({ input: 'x'.repeat(1000) });
    // Other models need the memory.
    for (let i = 0; i < 3; i++) await respond({ model: 'b', input: 'y'.repeat(1000) });
    expect(pool.kept.find(undefined, first.id)).toBeUndefined();
    const second = await respond({ input: 'z', previous_response_id: first.id });
    expect((await send('GET', `/v1/responses/${second.id}`)).status).toBe(200);
    await unload();
    expect((await send('GET', `/v1/responses/${second.id}`)).status).toBe(404);
  });
});
