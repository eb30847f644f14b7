import { connect } from 'node:net';
import { afterEach, describe, expect, it } from 'vitest';
import { gate } from '../../../test/support/chat-page.ts';
import { LetterEngine, lettersOf } from '../../../test/support/letter-engine.ts';
import { type PoolOptions, serveModelsHere } from '../../../test/support/model-processes.ts';
import { until } from '../../../test/support/until.ts';
import { mountEngine } from '../mount.ts';
import { Server, type ServerOptions } from '../server.ts';
import { forwardedRoutes } from './forwarded-routes.ts';

const cleanups: (() => unknown)[] = [];
afterEach(async () => {
  for (const cleanup of cleanups.splice(0).reverse()) await cleanup();
});
async function start(options: PoolOptions = {}, serverOptions: Partial<ServerOptions> = {}) {
  const here = await serveModelsHere(options, serverOptions);
  cleanups.push(here.close);
  return here;
}

/** Endpoints of a server of one model that a server of several answers itself. */
const ownRoutes = [
  ...[
    'GET /',
    'GET /page/:file',
    'GET /health',
    'GET /ping',
    'POST /ping',
    'GET /health/live',
    'GET /version',
    'GET /openapi.json',
  ],
  ...['GET /v1/models', 'GET /v1/models/:model', 'GET /metrics', 'GET /load'],
  ...['GET /api/tags', 'GET /api/ps', 'GET /api/version', 'POST /api/pull', 'POST /api/create', 'POST /api/copy'],
  ...['POST /api/push', 'DELETE /api/delete', 'POST /api/blobs/:digest'],
];

it('every endpoint of a server of one model is one of a server of several', async () => {
  const found = new Set<string>();
  const server = new Server(
    {
      register: (app, options) => {
        app.addHook('onRoute', ({ method, url }) => {
          for (const one of [method].flat()) if (one !== 'HEAD') found.add(`${one} ${url}`);
        });
        mountEngine(app, new LetterEngine(), options);
      },
      drain: async () => undefined,
      close: async () => undefined,
    },
    { version: '0.0.0', logLevel: 'silent' },
  );
  await server.app.ready();
  const expected = [...ownRoutes, ...forwardedRoutes.map(({ method, url }) => `${method} ${url}`)];
  const absentInLetters = [
    'GET /cache/events',
    'POST /cache/lose',
    'GET /kv_event_sources',
    'GET /kv_events/blocks',
    'POST /reset_prefix_cache',
    ...['GET /cache/lookup', 'POST /cache/lookup', 'POST /cache/prefetch', 'POST /cache/pin', 'POST /cache/unpin'],
    ...[
      'GET /cache/pins',
      'DELETE /cache/blocks',
      'POST /tiers/:name/clear',
      'PUT /tiers/:name',
      'DELETE /tiers/:name',
    ],
  ];
  const short = expected.filter((route) => route.includes(' /v1/')).map((route) => route.replace(' /v1/', ' /'));
  expect(new Set([...found, ...absentInLetters])).toEqual(new Set([...expected, ...short]));
  await server.close();
});

describe('a server of several models', () => {
  it('passes requests of all APIs to the model that they ask for, and answers as it does', async () => {
    const { post, processOf } = await start();
    const completion = await post('/v1/completions', { model: 'a-alias', prompt: 'abc', max_tokens: 4 });
    expect(await completion.json()).toMatchObject({ model: 'a', choices: [{ text: lettersOf(3, 4) }] });
    const stream = await post('/v1/chat/completions', {
      model: 'b',
      messages: [{ role: 'user', content: 'x' }],
      max_tokens: 2,
      stream: true,
    });
    expect(stream.headers.get('content-type')).toContain('text/event-stream');
    expect(await stream.text()).toMatch(/"model":"b".*data: \[DONE\]\n\n$/s);
    const message = await post('/v1/messages', {
      model: 'b',
      max_tokens: 2,
      messages: [{ role: 'user', content: 'x' }],
    });
    expect(await message.json()).toMatchObject({ type: 'message', model: 'b' });
    const chat = await post('/api/chat', {
      model: 'a:latest',
      messages: [{ role: 'user', content: 'x' }],
      options: { num_predict: 2 },
    });
    expect(await chat.text()).toMatch(/"done":true.*\n$/);
    expect((await post('/tokenize?model=b', { prompt: 'ab' })).status).toBe(200);
    expect([processOf('a')!.engine.requests.length, processOf('b')!.engine.requests.length]).toEqual([2, 2]);
  });

  it('errors have the form of the API; those of a model pass unchanged, and only its process logs them', async () => {
    const lines: string[] = [];
    const { post } = await start({}, { logLevel: 'info', logDestination: { write: (line) => void lines.push(line) } });
    const unknown = { model: 'z', messages: [] };
    expect([
      (await post('/v1/chat/completions', unknown)).status,
      await (await post('/v1/chat/completions', unknown)).json(),
    ]).toMatchObject([404, { error: { code: 'model_not_found', param: 'model' } }]);
    expect(await (await post('/v1/messages', unknown)).json()).toMatchObject({
      type: 'error',
      error: { type: 'not_found_error' },
    });
    expect(await (await post('/api/chat', unknown)).json()).toEqual({ error: expect.stringContaining('`z`') });
    expect(await (await post('/v1/completions', { prompt: 'x' })).json()).toMatchObject({
      error: { code: 'missing_required_parameter', param: 'model' },
    });
    expect(await (await post('/v1/completions', { model: 'a', prompt: 'x', top_p: 7 })).json()).toMatchObject({
      error: { param: 'top_p' },
    });
    const logged = lines.map((line) => JSON.parse(line) as { readonly msg: string; readonly status?: number });
    expect(logged.filter(({ msg }) => msg === 'request').map(({ status }) => status)).toEqual([
      404, 404, 404, 404, 400,
    ]);
  });

  it('lists all models with their state, and loads and unloads them', async () => {
    const { origin, post, processOf, states, started } = await start({ loads: false });
    const get = async (path: string) =>
      (await (await fetch(origin + path)).json()) as { readonly data: unknown; readonly models: readonly unknown[] };
    expect(await (await post('/models/load', { model: 'a' })).json()).toEqual({ success: true });
    await until(() => started.length === 1);
    processOf('a')!.progress({ phase: 'weights', message: 'half', doneBytes: 1, totalBytes: 2, retryAfterSeconds: 1 });
    expect((await get('/v1/models')).data).toMatchObject([
      { id: 'a', status: 'loading', progress: { phase: 'weights', message: 'half', doneBytes: 1, totalBytes: 2 } },
      { id: 'a-alias', root: 'a' },
      { id: 'b', status: 'unloaded' },
      { id: 'b-alias' },
    ]);
    await processOf('a')!.load();
    await until(() => processOf('a') !== undefined);
    await expect.poll(() => get('/v1/models/a')).toMatchObject({ status: 'loaded', max_model_len: 4096 });
    expect((await get('/api/tags')).models.length).toBe(2);
    expect((await get('/api/ps')).models).toMatchObject([{ name: 'a', context_length: 4096 }]);
    const kept = await post('/api/generate', { model: 'a', keep_alive: 0 });
    expect(await kept.json()).toMatchObject({ done: true, done_reason: 'unload' });
    await expect.poll(states).toEqual({ a: 'unloaded', b: 'unloaded' });
    expect((await post('/models/unload', { model: 'z' })).status).toBe(404);
  });

  it('a client that leaves ends its request in the process of the model', async () => {
    const steps = gate(3);
    const { post, processOf } = await start({ engine: { beforeStep: steps.beforeStep } });
    const client = new AbortController();
    const answer = await post(
      '/v1/completions',
      { model: 'a', prompt: 'abc', max_tokens: 100, stream: true },
      {},
      client.signal,
    );
    await answer.body!.getReader().read();
    client.abort();
    // The gate stays closed.
    await until(() => processOf('a')!.engine.stats().running === 0);
    expect(processOf('a')!.engine.stats().aborts).toBe(1);
  });

  it('a client that does not read stops its request in the process of the model, which ends after the client timeout', async () => {
    const many = 100_000;
    const { origin, post, processOf } = await start(
      { engine: { maxModelLen: 2 * many, clientTimeoutMs: 60_000 } },
      { clientTimeoutMs: 500 },
    );
    const text = JSON.stringify({ model: 'a', prompt: 'abc', max_tokens: many, stream: true });
    const socket = connect(Number(new URL(origin).port), '127.0.0.1').pause();
    cleanups.push(() => socket.destroy());
    socket.write(
      `POST /v1/completions HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: ${text.length}\r\n\r\n${text}`,
    );
    await until(() => processOf('a')?.engine.stats().aborts === 1);
    // What it has generated is in the buffers of sockets and in those of the two servers, which have limits.
    expect(processOf('a')!.engine.stats().generatedTokens).toBeLessThan(many / 2);
    expect((await post('/v1/completions', { model: 'a', prompt: 'abc', max_tokens: 1 })).status).toBe(200);
  });

  it.each([
    ['/v1/completions', { prompt: 'abc' }, /\n\ndata: \{"error":\{.*KVASIR_MODEL_PROCESS_ENDED.*\n\n$/],
    ['/v1/messages', { messages: [{ role: 'user', content: 'x' }] }, /\n\nevent: error\ndata: \{"type":"error".*\n\n$/],
    ['/api/chat', { messages: [{ role: 'user', content: 'x' }] }, /\n\{"error":"The process.*\n$/],
  ])('a stream of %s whose process ends has an error as its last event', async (path, body, last) => {
    const steps = gate(3);
    const { post, processOf } = await start({ engine: { beforeStep: steps.beforeStep } });
    cleanups.push(steps.open);
    const answer = await post(path, { model: 'a', max_tokens: 100, stream: true, ...body });
    const reader = answer.body!.pipeThrough(new TextDecoderStream()).getReader();
    let text = (await reader.read()).value ?? '';
    processOf('a')!.kill();
    for (;;) {
      const { done, value } = await reader.read();
      if (done) break;
      text += value;
    }
    expect(text).toMatch(last);
  });

  it('an answer without a stream whose process ends has status 503', async () => {
    const steps = gate(0);
    const { post, processOf } = await start({ engine: { beforeStep: steps.beforeStep } });
    cleanups.push(steps.open);
    const answer = post('/v1/completions', { model: 'a', prompt: 'abc' });
    await until(() => processOf('a')?.engine.stats().running === 1);
    processOf('a')!.kill();
    expect((await answer).status).toBe(503);
    expect(await (await answer).json()).toMatchObject({ error: { code: 'KVASIR_MODEL_PROCESS_ENDED' } });
  });

  it('a request that finds the sockets of a process closed waits for its end, and the model is loaded again', async () => {
    const { post, processOf, pool, started } = await start();
    const ask = async () => (await post('/v1/completions', { model: 'a', prompt: 'abc', max_tokens: 1 })).status;
    expect(await ask()).toBe(200);
    const process = processOf('a')!;
    await process.closeSockets();
    const answer = ask();
    await Promise.race([answer, until(() => pool.counts().open === 1)]);
    process.kill();
    expect(await answer).toBe(200);
    expect(started.length).toBe(2);
  });

  it('wants the API key before it loads a model, and models know whose key it is', async () => {
    const keys = { apiKey: ['one', 'two'] };
    const { post, started, origin } = await start({ engine: keys }, keys);
    expect((await post('/v1/completions', { model: 'a', prompt: 'abc' })).status).toBe(401);
    expect(started.length).toBe(0);
    const key = { authorization: 'Bearer one' };
    const made = (await (
      await post('/v1/responses', { model: 'a', input: 'x', max_output_tokens: 2 }, key)
    ).json()) as { readonly id: string };
    const get = (authorization: string) => fetch(`${origin}/v1/responses/${made.id}`, { headers: { authorization } });
    expect([(await get('Bearer one')).status, (await get('Bearer two')).status]).toEqual([200, 404]);
    expect((await post('/models/unload', { model: 'a' }, key)).status).toBe(403);
  });

  it('refuses large and broken bodies itself', async () => {
    const { post, started, origin } = await start({}, { bodyMaxBytes: 1000 });
    expect((await post('/v1/completions', { model: 'a', prompt: 'x'.repeat(1000) })).status).toBe(413);
    const broken = await fetch(`${origin}/v1/completions`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: '{"model":',
    });
    expect(broken.status).toBe(400);
    expect(started.length).toBe(0);
  });

  it('metrics have the samples of all models together, with their names', async () => {
    const { post, origin } = await start();
    for (const model of ['a', 'b'])
      await (await post('/v1/completions', { model, prompt: 'abc', max_tokens: 4 })).text();
    const text = await (await fetch(`${origin}/metrics`)).text();
    const lines = text.split('\n');
    const at = lines.indexOf('# TYPE vllm:generation_tokens_total counter');
    expect(lines.slice(at + 1, at + 3)).toEqual(
      ['a', 'b'].map((name) => `vllm:generation_tokens_total{model_name="${name}",engine="0"} 4`),
    );
    expect(
      text.match(
        /^# TYPE process_resident_memory_bytes gauge\nprocess_resident_memory_bytes \d+\n(process_resident_memory_bytes\{model_name="[ab]"\} \d+\n){2}/m,
      ),
    ).not.toBe(null);
    expect(text).toContain('http_requests_total{method="POST",handler="/v1/completions",status="2xx"} 2\n');
    expect(text).toContain('kvasir:model_loads_total{model_name="a",result="loaded"} 1\n');
    const types = lines.filter((line) => line.startsWith('# TYPE')).map((line) => line.split(' ')[2]);
    expect(new Set(types).size).toBe(types.length);
  });

  it('the end of the server refuses requests that wait for a model, and finishes those that run', async () => {
    const steps = gate(1);
    const { post, server, processOf, started } = await start({
      models: { a: 2, b: 1 },
      engine: { beforeStep: steps.beforeStep },
    });
    const running = await post('/v1/completions', { model: 'a', prompt: 'abc', max_tokens: 4, stream: true });
    const waits = post('/v1/completions', { model: 'b', prompt: 'abc' });
    await until(() => started.length === 1);
    await expect
      .poll(async () => (await fetch(`${new URL(running.url).origin}/load`)).json())
      .toEqual({ server_load: 2 });
    const drained = server.drain(60_000);
    expect(await (await waits).json()).toMatchObject({ error: { code: 'KVASIR_ENGINE_CLOSED' } });
    steps.open();
    expect(await running.text()).toContain('[DONE]');
    expect(await drained).toEqual({ how: 'drained' });
    expect(processOf('a')!.wasStopped).toBe(true);
  });
});
