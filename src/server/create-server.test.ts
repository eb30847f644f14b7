import { once } from 'node:events';
import { createServer as createHttpServer, get, type IncomingMessage, type ServerResponse } from 'node:http';
import { type AddressInfo, connect } from 'node:net';
import fastify from 'fastify';
import { afterEach, describe, expect, it, vi } from 'vitest';
import { LetterEngine } from '../../test/support/letter-engine.ts';
import { createServer } from './create-server.ts';

const cleanups: (() => unknown)[] = [];
afterEach(async () => {
  for (const cleanup of cleanups.splice(0)) await cleanup();
});

const silent = { logLevel: 'silent' } as const;
const chat = { messages: [{ role: 'user', content: 'hi' }], max_tokens: 3 };

async function post(url: string, body: unknown, headers: Record<string, string> = {}) {
  const response = await fetch(url, {
    method: 'POST',
    headers: { 'content-type': 'application/json', ...headers },
    body: JSON.stringify(body),
  });
  const text = await response.text();
  return { status: response.status, text, headers: response.headers, json: () => JSON.parse(text) };
}

/** Listens with `node:http`, and returns the origin. */
async function listen(handle: (request: IncomingMessage, response: ServerResponse) => void): Promise<string> {
  const server = createHttpServer(handle);
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  cleanups.push(() => {
    server.closeAllConnections();
    return new Promise((resolve) => server.close(resolve));
  });
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
}

describe('the plugin', () => {
  it('serves the API under its prefix, with its own key, limit and format of errors', async () => {
    const engine = new LetterEngine();
    const app = fastify();
    cleanups.push(() => app.close());
    app.post('/own', (request) => ({ got: request.body }));
    const options = { ...silent, apiKey: 'secret', bodyMaxBytes: 200 };
    await app.register(createServer(engine, options).plugin, { prefix: '/llm' });
    const origin = await app.listen({ port: 0, host: '127.0.0.1' });
    const key = { authorization: 'Bearer secret' };
    const url = `${origin}/llm/v1/chat/completions`;

    const whole = (await post(url, chat, key)).json();
    expect(whole.choices[0].message.content).toHaveLength(3);
    const { text } = await post(url, { ...chat, stream: true }, key);
    expect(text.trimEnd().endsWith('data: [DONE]')).toBe(true);
    expect((await post(url, chat)).json().error.code).toBe('invalid_api_key');
    expect((await post(url, { ...chat, user: 'x'.repeat(300) }, key)).status).toBe(413);
    expect((await post(`${origin}/llm/v1/chat`, chat, key)).json().error).toMatchObject({
      message: expect.stringContaining('/llm/v1/chat'),
    });
    expect((await fetch(url, { headers: key })).status).toBe(405);
    expect((await fetch(`${origin}/llm/`, { headers: key })).status).toBe(404);

    expect((await post(`${origin}/own`, { big: 'x'.repeat(300) })).json().got.big).toHaveLength(300);
    expect((await post(`${origin}/other`, {})).json()).toMatchObject({ statusCode: 404 });
  });

  it('mounts several engines in one application, also without a prefix', async () => {
    const app = fastify();
    cleanups.push(() => app.close());
    app.get('/', () => 'home');
    await app.register(createServer(new LetterEngine(), silent).plugin);
    await app.register(createServer(new LetterEngine({ answer: 'yes' }), silent).plugin, { prefix: '/other' });
    const origin = await app.listen({ port: 0, host: '127.0.0.1' });
    expect((await post(`${origin}/other/v1/chat/completions`, chat)).json().choices[0].message.content).toBe('yes');
    expect((await post(`${origin}/v1/chat/completions`, chat)).json().choices[0].message.content).not.toBe('yes');
    expect(await (await fetch(origin)).text()).toBe('home');
  });

  it('leaves the engine open when the application closes', async () => {
    const engine = new LetterEngine();
    const app = fastify();
    await app.register(createServer(engine, silent).plugin, { prefix: '/llm' });
    await app.ready();
    await app.close();
    expect(engine.isHealthy()).toBe(true);
    const { value } = await engine.generate({ prompt: 'x', params: { maxTokens: 1 } }).next();
    expect(value?.finish?.reason).toBe('length');
  });
});

describe('a mounted API without a key', () => {
  /** The status of a request that calls the server by this name. */
  async function statusFor(origin: string, path: string, host: string): Promise<number> {
    const request = get(`${origin}${path}`, { headers: { host } });
    const [response] = (await once(request, 'response')) as [IncomingMessage];
    response.resume();
    return response.statusCode!;
  }

  it.each([
    ['the plugin', undefined],
    ['the plugin with names', ['app.example']],
    ['the handler', undefined],
    ['the handler with names', ['app.example']],
  ])('answers local names, IP addresses and names that it was told: %s', async (what, allowedHosts) => {
    const options = { ...silent, ...(allowedHosts && { allowedHosts }) };
    let origin: string;
    if (what.startsWith('the plugin')) {
      const app = fastify({ trustProxy: true });
      cleanups.push(() => app.close());
      app.get('/own', () => 'own');
      await app.register(createServer(new LetterEngine(), options).plugin, { prefix: '/llm' });
      origin = await app.listen({ port: 0, host: '127.0.0.1' });
      expect(await statusFor(origin, '/own', 'evil.example')).toBe(200);
    } else origin = await listen(createServer(new LetterEngine(), { ...options, prefix: '/llm' }).handler);
    const statuses = ['localhost:3000', '10.0.0.1', 'app.example', 'evil.example'].map((host) =>
      statusFor(origin, '/llm/v1/models', host),
    );
    expect(await Promise.all(statuses)).toEqual([200, 200, allowedHosts === undefined ? 403 : 200, 403]);
    expect((await fetch(`${origin}/llm/tokenize`, { method: 'POST' })).status).toBe(415);
    const foreign = await post(`${origin}/llm/tokenize`, { prompt: 'a' }, { origin: 'https://evil.example' });
    expect(foreign.json().error.code).toBe('KVASIR_ORIGIN_NOT_ALLOWED');
    expect((await post(`${origin}/llm/tokenize`, { prompt: 'a' })).status).toBe(200);
  });
});

describe('the handler', () => {
  it('serves a node:http server, and each of its paths below a prefix', async () => {
    const { handler } = createServer(new LetterEngine(), { ...silent, prefix: '/llm' });
    const origin = await listen((request, response) => {
      if (request.url?.startsWith('/llm/') === true) handler(request, response);
      else response.end('own');
    });
    expect((await post(`${origin}/llm/v1/chat/completions`, chat)).json().choices[0].message.content).toHaveLength(3);
    expect((await post(`${origin}/llm/nothing`, chat)).json().error.type).toBe('invalid_request_error');
    expect((await post(`${origin}/elsewhere`, chat)).text).toBe('own');
    expect(await (await fetch(`${origin}/llm/health`)).json()).toEqual({ status: 'ok' });
  });

  it.each([
    ['an object', (bytes: string): unknown => JSON.parse(bytes)],
    ['a text', (bytes: string): unknown => bytes],
    ['bytes', (bytes: string): unknown => Buffer.from(bytes)],
  ])('takes a body that a middleware has read as %s', async (_, parse) => {
    const { handler } = createServer(new LetterEngine(), silent);
    const origin = await listen((request, response) => {
      let bytes = '';
      request.on('data', (chunk: Buffer) => {
        bytes += chunk;
      });
      request.on('end', () => handler(Object.assign(request, { body: parse(bytes) }), response));
    });
    const spaced = { messages: [{ role: 'user', content: 'e o' }], max_tokens: 3 };
    expect((await post(`${origin}/v1/chat/completions`, spaced)).json().choices[0].message.content).toHaveLength(3);
    expect((await post(`${origin}/v1/chat/completions`, { messages: 1 })).status).toBe(400);
  });

  it('aborts all requests of a client that disconnects', async () => {
    const engine = new LetterEngine({ beforeStep: () => new Promise(() => undefined) });
    const origin = await listen(createServer(engine, silent).handler);
    const socket = connect(Number(new URL(origin).port), '127.0.0.1');
    const body = JSON.stringify(chat);
    const head = `host: localhost\r\ncontent-type: application/json\r\ncontent-length: ${body.length}`;
    socket.write(`POST /v1/chat/completions HTTP/1.1\r\n${head}\r\n\r\n${body}`.repeat(3));
    await expect.poll(() => engine.stats().running).toBe(3);
    socket.destroy();
    await expect.poll(() => engine.stats().running).toBe(0);
  });

  it('aborts the request of a client that disconnects', async () => {
    let step = (): void => undefined;
    const begun = new Promise<void>((resolve) => {
      step = resolve;
    });
    const engine = new LetterEngine({
      beforeStep: async () => {
        step();
        await new Promise(() => undefined);
      },
    });
    const origin = await listen(createServer(engine, silent).handler);
    const controller = new AbortController();
    const body = JSON.stringify(chat);
    const headers = { 'content-type': 'application/json' };
    const answer = fetch(`${origin}/v1/chat/completions`, { method: 'POST', body, headers, signal: controller.signal });
    await begun;
    controller.abort();
    await expect(answer).rejects.toThrow();
    await expect.poll(() => engine.stats().running).toBe(0);
    expect(engine.isHealthy()).toBe(true);
  });
});

describe('the web handler', () => {
  const served = (options: ConstructorParameters<typeof LetterEngine>[0] = {}) => {
    const engine = new LetterEngine(options);
    return { engine, fetch: createServer(engine, { ...silent, prefix: '/llm' }).fetch };
  };
  const asked = (body: unknown, path = '/llm/v1/chat/completions', signal?: AbortSignal) =>
    new Request(`http://localhost${path}`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify(body),
      ...(signal === undefined ? {} : { signal }),
    });

  it('answers requests of web standards, in whole and as a stream', async () => {
    const { fetch } = served();
    const whole = await fetch(asked(chat));
    expect([whole.status, whole.headers.get('content-type')]).toEqual([200, 'application/json; charset=utf-8']);
    const { choices } = (await whole.json()) as { choices: { message: { content: string } }[] };
    const streamed = await fetch(asked({ ...chat, stream: true }));
    const events = (await streamed.text()).trim().split('\n\n');
    expect(events.at(-1)).toBe('data: [DONE]');
    const texts = events.slice(0, -1).map((event) => JSON.parse(event.slice(6)).choices[0].delta.content ?? '');
    expect(texts.join('')).toBe(choices[0]!.message.content);
    expect((await fetch(new Request('http://localhost/llm/health'))).status).toBe(200);
    const head = await fetch(new Request('http://localhost/llm/v1/models', { method: 'HEAD' }));
    expect([head.status, await head.text()]).toEqual([200, '']);
    expect((await fetch(new Request('http://localhost/other'))).status).toBe(404);
    expect((await fetch(new Request('http://evil.example/llm/v1/models'))).status).toBe(403);
  });

  it('takes a body in parts', async () => {
    const { fetch } = served();
    const parts = JSON.stringify(chat).match(/.{1,9}/g)!;
    const body = new ReadableStream({
      pull: (controller) => {
        const part = parts.shift();
        if (part === undefined) controller.close();
        else controller.enqueue(new TextEncoder().encode(part));
      },
    });
    const headers = { 'content-type': 'application/json' };
    const init = { method: 'POST', headers, body, duplex: 'half' } as const;
    expect((await fetch(new Request('http://localhost/llm/v1/chat/completions', init))).status).toBe(200);
  });

  it('aborts a request whose reader leaves, before and after its head', async () => {
    let goOn = (): void => undefined;
    const { engine, fetch } = served({ beforeStep: () => new Promise<void>((resolve) => (goOn = resolve)) });
    const controller = new AbortController();
    const waiting = fetch(asked({ ...chat, max_tokens: 100 }, undefined, controller.signal));
    await vi.waitFor(() => expect(engine.requests).toHaveLength(1));
    controller.abort();
    await expect(waiting).rejects.toThrow();
    await vi.waitFor(() => {
      goOn();
      expect(engine.stats()).toMatchObject({ running: 0, aborts: 1 });
    });
    const streaming = fetch(asked({ ...chat, max_tokens: 100, stream: true }));
    const steps = setInterval(() => goOn(), 1);
    cleanups.push(() => clearInterval(steps));
    const reader = (await streaming).body!.getReader();
    await reader.read();
    await reader.cancel();
    await vi.waitFor(() => expect(engine.stats()).toMatchObject({ running: 0, aborts: 2 }));
  });
});
