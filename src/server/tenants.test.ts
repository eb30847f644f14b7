/** Servers with several keys: what one key may see, change and use of what belongs to others. */
import OpenAI from 'openai';
import { afterEach, describe, expect, it, vi } from 'vitest';
import { LetterEngine, type LetterEngineOptions } from '../../test/support/letter-engine.ts';
import { toyEngine } from '../../test/support/toy-model.ts';
import { until } from '../../test/support/until.ts';
import type { AsyncEngine } from '../engine/contract.ts';
import { Server, type ServerOptions } from './server.ts';

const cleanups: (() => unknown)[] = [];
afterEach(async () => {
  for (const cleanup of cleanups.splice(0).reverse()) await cleanup();
});

const admin = { name: 'ops', key: 'ops', isAdmin: true };

async function serve(engine: AsyncEngine, options: Partial<ServerOptions> = {}) {
  const server = new Server(engine, {
    version: '1',
    logLevel: 'silent',
    apiKey: ['a', 'b'],
    apiKeyLimits: [admin],
    ...options,
  });
  const origin = `http://127.0.0.1:${await server.listen(0, '127.0.0.1')}`;
  cleanups.push(
    () => engine.close(),
    () => server.close(),
  );
  const send = async (key: string, path: string, body?: object, method = body === undefined ? 'GET' : 'POST') => {
    const response = await fetch(origin + path, {
      method,
      headers: { authorization: `Bearer ${key}`, ...(body && { 'content-type': 'application/json' }) },
      ...(body && { body: JSON.stringify(body) }),
    });
    const text = await response.text();
    return { status: response.status, text, json: () => JSON.parse(text) };
  };
  const client = (apiKey: string) => new OpenAI({ baseURL: `${origin}/v1`, apiKey, maxRetries: 0 });
  return { server, origin, send, client };
}

/** Steps run when `open` is called. */
function gated(options: LetterEngineOptions = {}) {
  let open: () => void = () => undefined;
  const opened = new Promise<void>((resolve) => {
    open = resolve;
  });
  cleanups.push(open);
  return { engine: new LetterEngine({ maxModelLen: 5000, beforeStep: () => opened, ...options }), open };
}

describe('a stored response', () => {
  it('exists only for the key that made it, on every route', async () => {
    const { send, client } = await serve(new LetterEngine({ maxModelLen: 5000 }));
    const made = await client('a').responses.create({ model: 'letters', input: 'hi', max_output_tokens: 16 });
    const [item] = made.output;
    const attempts = async (key: string) => [
      await send(key, `/v1/responses/${made.id}`),
      await send(key, `/v1/responses/${made.id}/cancel`, {}),
      await send(key, '/v1/responses', { input: 'go on', previous_response_id: made.id }),
      await send(key, '/v1/responses', { input: [{ type: 'item_reference', id: item!.id }] }),
      await send(key, `/v1/responses/${made.id}`, undefined, 'DELETE'),
    ];
    for (const key of ['b', 'ops']) {
      const answers = await attempts(key);
      expect(answers.map(({ status }) => status)).toEqual([404, 404, 400, 400, 404]);
      expect(answers[2]!.json().error.code).toBe('previous_response_not_found');
      const unknown = await send(key, '/v1/responses/resp_x');
      expect(answers[0]!.text).toBe(unknown.text.replace('resp_x', made.id));
    }
    const own = await attempts('a');
    expect(own.map(({ status }) => status)).toEqual([200, 400, 200, 200, 200]);
  });

  it('of the only key does not exist for the key of administrators', async () => {
    const keys = { apiKey: 'a', apiKeyLimits: undefined, adminKey: 'ops' };
    const { send, client } = await serve(new LetterEngine({ maxModelLen: 5000 }), keys as object);
    const { id } = await client('a').responses.create({ model: 'letters', input: 'hi', max_output_tokens: 16 });
    expect((await send('ops', '/v1/responses', { input: 'go on', previous_response_id: id })).status).toBe(400);
    expect((await send('ops', `/v1/responses/${id}`)).status).toBe(404);
    expect((await send('ops', `/v1/responses/${id}`, undefined, 'DELETE')).status).toBe(404);
    expect((await send('a', `/v1/responses/${id}`)).status).toBe(200);
  });

  it('that still runs exists only for the key that began it', async () => {
    const { engine, open } = gated();
    const { send } = await serve(engine);
    const { id } = (await send('a', '/v1/responses', { input: 'hi', background: true, max_output_tokens: 16 })).json();
    expect((await send('b', `/v1/responses/${id}`)).status).toBe(404);
    expect((await send('b', `/v1/responses/${id}/cancel`, {})).status).toBe(404);
    expect((await send('b', `/v1/responses/${id}`, undefined, 'DELETE')).status).toBe(404);
    expect((await send('a', `/v1/responses/${id}`)).json().status).toBe('queued');
    open();
    await until(() => engine.stats().running === 0);
    expect((await send('a', `/v1/responses/${id}`)).status).toBe(200);
  });

  it('is not removed by the responses of another key', async () => {
    const { send, client } = await serve(new LetterEngine({ maxModelLen: 5000 }), { responseStoreMaxBytes: 60_000 });
    const create = (key: string) =>
      client(key).responses.create({ model: 'letters', input: 'x'.repeat(1000), max_output_tokens: 16 });
    const first = await create('a');
    const others: string[] = [];
    for (let i = 0; i < 20; i++) others.push((await create('b')).id);
    expect((await send('a', `/v1/responses/${first.id}`)).status).toBe(200);
    expect((await send('b', `/v1/responses/${others[0]}`)).status).toBe(404);
    expect((await send('b', `/v1/responses/${others.at(-1)}`)).status).toBe(200);
  });
});

describe('what a key sees of the cache', () => {
  /** The first whole state that a key gets. */
  async function stateFor(origin: string, key?: string) {
    const headers = key === undefined ? {} : { authorization: `Bearer ${key}` };
    const response = await fetch(`${origin}/cache/events`, { headers });
    const reader = response.body!.pipeThrough(new TextDecoderStream()).getReader();
    let text = '';
    while (text.split('\n\n').length < 3) text += (await reader.read()).value;
    await reader.cancel();
    const event = text.split('\n\n').find((part) => part.includes('"isWhole":true'))!;
    return { text, parts: JSON.parse(event.slice('data: '.length)).parts as Record<string, unknown> };
  }

  it('are its own requests, and never their ids; an administrator sees all requests', async () => {
    let open: () => void = () => undefined;
    const opened = new Promise<void>((resolve) => {
      open = resolve;
    });
    cleanups.push(() => open());
    const toy = toyEngine({ beforeStep: () => opened });
    const { origin, send } = await serve(toy.engine);
    const { id } = (await send('a', '/v1/responses', { input: 'hi', background: true, max_output_tokens: 16 })).json();
    const other = send('b', '/v1/completions', { prompt: 'abc', max_tokens: 5 });
    await until(() => toy.engine.stats().running + toy.engine.stats().waiting === 2);
    const [forA, forB, forOps] = await Promise.all(['a', 'b', 'ops'].map((key) => stateFor(origin, key)));
    expect(forA!.parts.requests).toEqual(['resp-1.0']);
    expect(forB!.parts.requests).toEqual(['cmpl-2.0']);
    expect((forOps!.parts.requests as string[]).toSorted((a, b) => (a < b ? -1 : 1))).toEqual(['cmpl-2.0', 'resp-1.0']);
    expect(Object.keys(forB!.parts).filter((name) => name.includes('resp'))).toEqual([]);
    for (const { text } of [forA!, forB!, forOps!]) expect(text).not.toContain(id.slice(5));
    open();
    expect((await other).status).toBe(200);
  });

  it('has no ids without a key either, and names that blocks can be lost by', async () => {
    let open: () => void = () => undefined;
    const opened = new Promise<void>((resolve) => {
      open = resolve;
    });
    cleanups.push(() => open());
    const toy = toyEngine({ beforeStep: (step) => (step === 1 ? Promise.resolve() : opened) });
    const server = new Server(toy.engine, { version: '1', logLevel: 'silent', enableFaultInjection: true });
    cleanups.push(
      () => toy.engine.close(),
      () => server.close(),
    );
    const origin = `http://127.0.0.1:${await server.listen(0, '127.0.0.1')}`;
    const post = (path: string, body: object) =>
      fetch(origin + path, {
        method: 'POST',
        headers: { 'content-type': 'application/json' },
        body: JSON.stringify(body),
      });
    const body = { input: 'hi', background: true, max_output_tokens: 16, ignore_eos: true };
    const made = await post('/v1/responses', body);
    const { id } = (await made.json()) as { id: string };
    await until(() => toy.executor.steps === 2);
    const { text, parts } = await stateFor(origin);
    expect(parts.requests).toEqual(['resp-1.0']);
    expect(text).not.toContain(id.slice(5));
    const loseBlocks = vi.spyOn(toy.engine.cache!, 'loseBlocks');
    const lost = post('/cache/lose', { count: 1, request: 'resp-1.0' });
    await until(() => loseBlocks.mock.calls.length === 1);
    open();
    expect(((await (await lost).json()) as { blocks: number[] }).blocks).toHaveLength(1);
  });

  it('does not include what concerns all keys, unless it is an administrator', async () => {
    const { engine } = toyEngine();
    const { send } = await serve(engine, { enableFaultInjection: true });
    const routes: [string, object?][] = [
      ['/reset_prefix_cache', {}],
      ['/cache/lose', { count: 1 }],
      ['/kv_event_sources'],
    ];
    for (const [path, body] of routes) {
      expect((await send('a', path, body)).json().error.code).toBe('KVASIR_ADMIN_ONLY');
      expect((await send('a', path, body)).status).toBe(403);
      expect((await send('ops', path, body)).status).toBe(200);
      expect((await send('x', path, body)).status).toBe(401);
    }
  });

  it('includes everything for the only key of a server', async () => {
    const { engine } = toyEngine();
    const { send } = await serve(engine, {
      apiKey: ['a', 'a'],
      apiKeyLimits: [{ name: 'a', key: 'a', maxRunning: 1 }],
    });
    expect((await send('a', '/reset_prefix_cache', {})).status).toBe(200);
  });
});

describe('the limits of a key', () => {
  const limited = (maxRunning: number, maxWaiting = 0) => ({
    apiKeyLimits: [{ name: 'team', key: 'k', maxRunning, maxWaiting }],
  });
  const counted = async (origin: string) => {
    const text = await (await fetch(`${origin}/metrics`)).text();
    const all = text.matchAll(/^kvasir:key_requests_(running|waiting)\{key="team"\} (\d+)$/gm);
    return Object.fromEntries([...all].map(([, what, count]) => [what, Number(count)]));
  };

  const heldBytes = async (origin: string) => {
    const text = await (await fetch(`${origin}/metrics`)).text();
    return Number(/^kvasir:request_memory_bytes (\d+)$/m.exec(text)![1]);
  };

  it.each([
    ['/v1/completions', { prompt: 'ab', n: 3 }, 3],
    ['/v1/completions', { prompt: ['ab', 'cd', 'ef'] }, 3],
    ['/v1/completions', { prompt: ['ab', 'cd'], n: 2 }, 4],
    ['/v1/completions', { prompt: 'ab', best_of: 4 }, 4],
    ['/v1/chat/completions', { messages: [{ role: 'user', content: 'hi' }], n: 2 }, 2],
    ['/v1/responses', { input: 'hi' }, 1],
    ['/v1/responses', { input: 'hi', background: true }, 1],
    ['/v1/responses', { input: 'hi', background: true, stream: true }, 1],
  ])('count completions: %s %j', async (path, body, count) => {
    const { engine, open } = gated();
    const { origin, send } = await serve(engine, limited(4));
    const answer = send('k', path, { ...body, ...(path === '/v1/responses' ? {} : { max_tokens: 2 }) });
    while ((await counted(origin)).running !== count) await new Promise(setImmediate);
    expect((await send('k', '/v1/completions', { prompt: 'x', n: 5 - count })).status).toBe(429);
    open();
    expect((await answer).status).toBe(200);
    while ((await counted(origin)).running !== 0) await new Promise(setImmediate);
  });

  it('run a long list of prompts in parts, and refuse completions that never fit', async () => {
    const { send } = await serve(new LetterEngine({ pooling: 'mean' }), limited(3));
    const prompts = Array.from({ length: 20 }, (_, i) => 'x'.repeat(i + 1));
    const listed = (await send('k', '/v1/completions', { prompt: prompts, n: 2, max_tokens: 3 })).json();
    expect(listed.choices).toHaveLength(40);
    const alone = await Promise.all(
      prompts.map(async (prompt) => (await send('a', '/v1/completions', { prompt, n: 2, max_tokens: 3 })).json()),
    );
    const texts = ({ choices }: { choices: { text: string }[] }) => choices.map(({ text }) => text);
    expect(texts(listed)).toEqual(alone.flatMap(texts));
    const embedded = (await send('k', '/v1/embeddings', { input: prompts })).json();
    expect(embedded.data.map(({ embedding }: { embedding: number[] }) => embedding[0])).toEqual(
      (await send('a', '/v1/embeddings', { input: prompts }))
        .json()
        .data.map((one: (typeof embedded.data)[0]) => one.embedding[0]),
    );
    const refused = await send('k', '/v1/completions', { prompt: 'x', n: 4 });
    expect([refused.status, refused.json().error.code]).toEqual([400, 'KVASIR_TOO_MANY_CHOICES']);
  });

  it('count responses in the background, which wait without a client and can be cancelled', async () => {
    const { engine, open } = gated();
    const { origin, send } = await serve(engine, limited(1, 2));
    const begin = () => send('k', '/v1/responses', { input: 'hi', background: true, max_output_tokens: 16 });
    const ids: string[] = [];
    for (let i = 0; i < 3; i++) ids.push((await begin()).json().id);
    expect(await counted(origin)).toEqual({ running: 1, waiting: 2 });
    for (let i = 0; i < 20; i++) expect((await begin()).status).toBe(429);
    expect(engine.requests).toHaveLength(1);
    expect((await send('k', `/v1/responses/${ids[1]}`)).json().status).toBe('queued');
    expect((await send('k', `/v1/responses/${ids[1]}/cancel`, {})).json().status).toBe('cancelled');
    while ((await counted(origin)).waiting !== 1) await new Promise(setImmediate);
    open();
    while ((await counted(origin)).running !== 0) await new Promise(setImmediate);
    const ends = await Promise.all(ids.map(async (id) => (await send('k', `/v1/responses/${id}`)).json().status));
    expect(ends).toEqual(['incomplete', 'cancelled', 'incomplete']);
  });

  it('are waited for before memory, and a response that needs too much is refused at once', async () => {
    const { engine, open } = gated();
    const { origin, send } = await serve(engine, { ...limited(1, 9), requestMaxBytes: 20_000 });
    const background = { input: 'hi', background: true, max_output_tokens: 16 };
    await send('k', '/v1/responses', background);
    while (engine.requests.length !== 1) await new Promise(setImmediate);
    const before = await heldBytes(origin);
    for (let i = 0; i < 4; i++) await send('k', '/v1/responses', background);
    expect((await heldBytes(origin)) - before).toBe(4 * 4 * JSON.stringify(background).length);
    const refused = await send('k', '/v1/responses', { ...background, max_output_tokens: 4000 });
    expect(refused.json().error.code).toBe('KVASIR_REQUEST_OVER_MEMORY');
    open();
    while ((await heldBytes(origin)) !== 0) await new Promise(setImmediate);
  });

  it('give the place and the memory back after each error', async () => {
    const { origin, send } = await serve(new LetterEngine({ failAtStep: 2 }), limited(1));
    const chat = { messages: [{ role: 'user', content: 'hi' }], max_tokens: 5 };
    for (const [path, body] of [
      ['/v1/completions', { prompt: 'a'.repeat(300) }],
      ['/v1/completions', { prompt: 'a', max_tokens: 5 }],
      ['/v1/completions', { prompt: 'a', max_tokens: 5, stream: true }],
      ['/v1/completions', { prompt: 'a', nothing: 1 }],
      ['/v1/chat/completions', chat],
      ['/v1/embeddings', { input: 'a' }],
      ['/v1/responses', { input: 'a'.repeat(300) }],
      ['/v1/responses', { input: 'a' }],
      ['/v1/responses', { input: 'a', stream: true }],
      ['/v1/responses', { input: 'a', background: true }],
      ['/v1/responses', { input: 'a', background: true, stream: true }],
    ] as const) {
      expect((await send('k', path, body)).status).not.toBe(429);
      while ((await counted(origin)).running !== 0) await new Promise(setImmediate);
      while ((await heldBytes(origin)) !== 0) await new Promise(setImmediate);
    }
  });
});

describe('a key with a long backlog', () => {
  it('does not delay the first completion of another key', async () => {
    let open: () => void = () => undefined;
    const opened = new Promise<void>((resolve) => {
      open = resolve;
    });
    cleanups.push(() => open());
    const toy = toyEngine({
      beforeStep: (step) => (step < 10 ? Promise.resolve() : opened),
      blockCount: 4000,
      settings: { maxWaiting: 1024 },
    });
    const { send } = await serve(toy.engine);
    // Requests for more completions wait before they reach the engine.
    const fill = { prompt: 'abc', n: 8, max_tokens: 100, ignore_eos: true };
    const many = Array.from({ length: 100 }, () => send('a', '/v1/completions', fill));
    await until(() => toy.engine.stats().running + toy.engine.stats().waiting >= 128 * 5 && toy.executor.steps === 10);
    const ended: (string | undefined)[] = [];
    toy.engine.observe({ completionEnded: ({ request }) => void ended.push(request.tenant) });
    const arrived = vi.spyOn(toy.engine, 'generate');
    const other = send('b', '/v1/completions', { prompt: 'xyz', max_tokens: 3 });
    await until(() => arrived.mock.calls.length === 1);
    open();
    expect((await other).status).toBe(200);
    // The completions of the first key need a hundred steps.
    expect(ended[0]).toBe('key-2');
    await Promise.allSettled([toy.engine.close(), ...many]);
  });
});
