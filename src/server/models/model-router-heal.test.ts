import { afterEach, describe, expect, it } from 'vitest';
import { type PoolOptions, serveModelsHere } from '../../../test/support/model-processes.ts';
import type { ServerOptions } from '../server.ts';

const cleanups: (() => unknown)[] = [];
afterEach(async () => {
  for (const cleanup of cleanups.splice(0).reverse()) await cleanup();
});
async function start(options: PoolOptions = {}, serverOptions: Partial<ServerOptions> = {}) {
  const here = await serveModelsHere(options, serverOptions);
  cleanups.push(here.close);
  return here;
}
type Started = Awaited<ReturnType<typeof start>>;

const storedIn = async ({ post }: Started, model: string, headers: Record<string, string> = {}): Promise<string> => {
  const answer = await post('/v1/responses', { model, input: 'x', max_output_tokens: 2 }, headers);
  return ((await answer.json()) as { readonly id: string }).id;
};

describe('keep_alive: 0', () => {
  const keys = { apiKey: ['one', 'two'], adminKey: 'admin' };
  const as = (key: string) => ({ authorization: `Bearer ${key}` });
  const chat = { model: 'a', messages: [{ role: 'user', content: 'x' }], stream: false, options: { num_predict: 2 } };

  it('of a caller who may not unload models has no effect', async () => {
    const here = await start({ engine: keys }, keys);
    const { post, states, origin } = here;
    const id = await storedIn(here, 'a', as('two'));
    expect((await post('/api/chat', { ...chat, keep_alive: 0 }, as('one'))).status).toBe(200);
    const unload = await post('/api/generate', { model: 'a', keep_alive: '0s' }, as('one'));
    expect(await unload.json()).toMatchObject({ model: 'a', done: true });
    expect((await post('/api/generate', { model: 'z', keep_alive: 0 }, as('one'))).status).toBe(404);
    expect(await states()).toEqual({ a: 'loaded', b: 'unloaded' });
    expect((await fetch(`${origin}/v1/responses/${id}`, { headers: as('two') })).status).toBe(200);
  });

  it.each([
    ['after its request', '/api/chat', chat],
    ['without a request', '/api/generate', { model: 'a' }],
  ])('of an administrator unloads the model %s', async (_, path, body) => {
    const { post, states } = await start({ engine: keys }, keys);
    await (await post('/api/chat', chat, as('admin'))).text();
    expect((await post(path, { ...body, keep_alive: 0 }, as('admin'))).status).toBe(200);
    await expect.poll(states).toEqual({ a: 'unloaded', b: 'unloaded' });
  });
});

describe('a process that hangs', () => {
  it('delays neither the stored responses of other models nor metrics', async () => {
    const here = await start();
    const { origin, processOf } = here;
    await storedIn(here, 'a');
    const id = await storedIn(here, 'b');
    await processOf('a')!.hang();
    const get = async (path: string) => (await fetch(origin + path)).status;
    expect(await get(`/v1/responses/${id}`)).toBe(200);
    expect(await get(`/v1/responses/${id}/input_items`)).toBe(200);
    expect(await (await fetch(`${origin}/v1/responses/none`)).json()).toMatchObject({
      error: { code: 'KVASIR_MODEL_SILENT', message: expect.stringContaining('`a`') },
    });
    const metrics = await (await fetch(`${origin}/metrics`)).text();
    expect(metrics).toContain('vllm:generation_tokens_total{model_name="b"');
    expect(metrics).not.toContain('vllm:generation_tokens_total{model_name="a"');
    expect((await fetch(`${origin}/v1/responses/${id}`, { method: 'DELETE' })).status).toBe(200);
  });
});

it('health says ok, or which models failed', async () => {
  const { origin, post, processOf } = await start();
  const health = async () => (await fetch(`${origin}/health`)).json();
  await (await post('/v1/completions', { model: 'a', prompt: 'x', max_tokens: 1 })).text();
  expect(await health()).toEqual({ status: 'ok', models: { loaded: 1, loading: 0, failed: 0 } });
  processOf('a')!.kill();
  await expect.poll(health).toMatchObject({
    status: 'degraded',
    message: 'The process of the model a died of SIGKILL.',
    troubles: [{ model: 'a', state: 'failed' }],
  });
});
