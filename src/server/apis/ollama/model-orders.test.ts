import { Ollama } from 'ollama';
import { afterEach, describe, expect, it } from 'vitest';
import { LetterEngine } from '../../../../test/support/letter-engine.ts';
import { type PoolOptions, serveModelsHere } from '../../../../test/support/model-processes.ts';
import { createServer } from '../../create-server.ts';
import { Server } from '../../server.ts';
import type { ServerOptions } from '../../server-options.ts';
import { closeServers, serveLetters } from '../responses/served-letters.suite.ts';

/** Requests of Ollama's clients for no text, and the form of errors: of a server of one model, and of one of several. */
closeServers();
const cleanups: (() => unknown)[] = [];
afterEach(async () => {
  for (const cleanup of cleanups.splice(0).reverse()) await cleanup();
});

/** Servers whose model `a` answers. */
const kinds = [['one model'], ['several models']] as const;
type Kind = (typeof kinds)[number][0];

async function start(kind: Kind, options: Partial<ServerOptions> = {}, pool: PoolOptions = {}) {
  if (kind === 'one model') {
    const { origin } = await serveLetters({ aliases: ['a'], pooling: 'mean' }, options);
    return origin;
  }
  const here = await serveModelsHere({ engine: { pooling: 'mean', ...options }, ...pool }, options);
  cleanups.push(here.close);
  return here.origin;
}

async function send(url: string, body: unknown, headers: Record<string, string> = json, method = 'POST') {
  const sent = typeof body === 'string' ? Buffer.from(body) : Buffer.from(JSON.stringify(body));
  const answer = await fetch(url, { method, headers, body: sent });
  const text = await answer.text();
  return { status: answer.status, body: text === '' ? undefined : JSON.parse(text) };
}

const json = { 'content-type': 'application/json' };

/** All fields of a request of Ollama's client for Go, whose strings are empty by default. */
const ofGo = { model: 'a', prompt: '', suffix: '', system: '', template: '', options: null };

describe.each(kinds)('a server of %s', (kind) => {
  it.each([
    [ofGo, 'load'],
    [{ model: 'a' }, 'load'],
    [{ model: 'a', prompt: '', suffix: 'x', raw: true }, 'load'],
    [{ model: 'a', prompt: '', keep_alive: '5m' }, 'load'],
    [{ model: 'a', keep_alive: -1 }, 'load'],
    [{ ...ofGo, keep_alive: 0 }, 'unload'],
    [{ model: 'a', keep_alive: '0' }, 'unload'],
    ['{"model":"a","keep_alive":0.0}', 'unload'],
    [{ model: 'a:latest', keep_alive: '0h0.0s', stream: false }, 'unload'],
  ])('/api/generate with %j is done: %s', async (body, done_reason) => {
    const answer = await send(`${await start(kind)}/api/generate`, body);
    expect(answer).toEqual({
      status: 200,
      body: {
        model: expect.any(String),
        created_at: expect.any(String),
        response: '',
        done: true,
        done_reason,
      },
    });
  });

  it.each([
    [{ model: 'a' }, 'load'],
    [{ model: 'a', messages: [], keep_alive: '10m' }, 'load'],
    [{ model: 'a', messages: null, keep_alive: '0s' }, 'unload'],
  ])('/api/chat with %j is done: %s', async (body, done_reason) => {
    const { body: answer } = await send(`${await start(kind)}/api/chat`, body);
    expect(answer).toMatchObject({ message: { role: 'assistant', content: '' }, done: true, done_reason });
    expect(answer).not.toHaveProperty('response');
  });

  it.each([
    ['/api/embed', { model: 'a' }, { embeddings: [] }],
    ['/api/embed', { model: 'a', input: '' }, { embeddings: [] }],
    ['/api/embed', { model: 'a', input: [] }, { embeddings: [] }],
    ['/api/embed', { model: 'a', input: 'ab', dimensions: 0 }, { embeddings: [[2, 98, 0.5, -0.25]] }],
    ['/api/embeddings', { model: 'a', prompt: 'ab' }, { embedding: [2, 98, 0.5, -0.25] }],
    ['/api/embeddings', { model: 'a', prompt: '', options: null }, { embedding: [] }],
  ])('%s with %j has the vectors of its texts', async (path, body, expected) => {
    const answer = await send((await start(kind)) + path, body);
    expect([answer.status, Object.keys(answer.body.embeddings ?? answer.body.embedding)]).toEqual([
      200,
      Object.keys(Object.values(expected)[0]!),
    ]);
  });

  it.each([
    ['5', '-', '5 m', '1d', '', 'm', {}, true, '9'.repeat(1_000_000), `${'1s'.repeat(1_000_000)}x`],
    // Each is no time.
  ])('refuses other values of keep_alive', async (...values) => {
    const origin = await start(kind);
    for (const keep_alive of values) {
      const { status, body } = await send(`${origin}/api/generate`, { model: 'a', keep_alive });
      expect([status, body.error]).toEqual([400, expect.stringMatching(/`keep_alive`/)]);
    }
  });

  it('has the version of an Ollama that clients take', async () => {
    const { version } = (await (await fetch(`${await start(kind)}/api/version`)).json()) as {
      readonly version: string;
    };
    const [major = 0, minor = 0] = version.split('.').map(Number);
    expect(major * 1000 + minor).toBeGreaterThan(6);
  });

  it.each([
    ['POST', '/api/none', '{}', json, 404],
    ['GET', '/api/none/else?x=1', undefined, {}, 404],
    ['GET', '/api/chat', undefined, {}, 405],
    ['PUT', '/api/tags', '{}', json, 405],
    ['POST', '/api/chat', '{"model":', json, 400],
    ['POST', '/api/chat', '[]', json, 400],
    ['POST', '/api/chat', '', json, 400],
    ['POST', '/api/chat', Buffer.from([0xff]), json, 400],
    ['POST', '/api/generate', '{"model":"other","prompt":"x"}', json, 404],
    ['POST', '/api/show', '{"name":"other"}', json, 404],
    ['POST', '/api/chat', '{}', { ...json, origin: 'https://evil.example' }, 403],
    ['POST', '/api/chat', '()', { ...json, 'content-encoding': 'br' }, 415],
    ['POST', '/api/pull', '{"model":"other"}', json, 403],
    ['POST', '/api/pull', '{}', json, 400],
    ['DELETE', '/api/delete', '{"model":"a"}', json, 403],
    ['POST', '/api/copy', '{"source":"a","destination":"b"}', json, 403],
    ['POST', '/api/create', '{"model":"b","from":"a"}', json, 403],
    ['POST', '/api/push', '{"model":"a"}', json, 403],
    ['POST', '/api/blobs/sha256:0', 'GGUF', { 'content-type': 'application/octet-stream' }, 403],
  ] as const)('%s %s with %s says only why it is refused', async (method, path, body, headers, status) => {
    const origin = await start(kind);
    const answer = await fetch(origin + path, { method, headers, ...(body === undefined ? {} : { body }) });
    expect([answer.status, await answer.json()]).toEqual([status, { error: expect.stringMatching(/./) }]);
  });

  it('says that a body is too large', async () => {
    const origin = await start(kind, { bodyMaxBytes: 1000 });
    const { status, body } = await send(`${origin}/api/embed`, { model: 'a', input: 'x'.repeat(1000) });
    expect([status, body]).toEqual([413, { error: expect.stringMatching(/1000 bytes/) }]);
  });

  it('says so without a key and for other names of the server too, and has OpenAI’s form elsewhere', async () => {
    const origin = await start(kind, { apiKey: 'secret' });
    for (const path of ['/api/tags', '/api/none'])
      expect(await (await fetch(origin + path)).json(), path).toEqual({ error: expect.stringMatching(/key/) });
    for (const path of ['/v1/models', '/api', '/apix/tags'])
      expect(await (await fetch(origin + path)).json(), path).toMatchObject({ error: { message: expect.any(String) } });
  });

  it('pulls what it has', async () => {
    const origin = await start(kind);
    const client = new Ollama({ host: origin });
    expect(await client.pull({ model: 'a' })).toEqual({ status: 'success' });
    const lines = [];
    for await (const { status } of await client.pull({ model: 'a:latest', stream: true })) lines.push(status);
    expect([lines[0], lines.at(-1)]).toEqual(['pulling manifest', 'success']);
  });
});

describe('a body below /api', () => {
  const body = { model: 'a', messages: [{ role: 'user', content: 'Hi' }], stream: false };
  const simple = [
    {},
    { 'content-type': 'application/x-www-form-urlencoded' },
    { 'content-type': 'text/plain;charset=UTF-8' },
    { 'content-type': 'json' },
  ];

  it.each(kinds)('is read with any content type from programs, and only as JSON from web pages (%s)', async (kind) => {
    const origin = await start(kind);
    const ask = async (headers: Record<string, string>, path = '/api/chat') =>
      (await send(origin + path, body, headers)).status;
    for (const type of simple) {
      expect([type, await ask(type)]).toEqual([type, 200]);
      for (const page of [
        { origin },
        { origin: 'null' },
        { origin: 'https://evil.example' },
        { 'sec-fetch-site': 'same-origin' },
        { 'sec-fetch-site': 'none' },
        { 'sec-fetch-site': 'cross-site' },
      ])
        expect([type, page, (await ask({ ...type, ...page })) >= 400]).toEqual([type, page, true]);
      expect([type, await ask(type, '/v1/chat/completions')]).toEqual([type, 415]);
    }
    expect(await ask({ ...json, origin })).toBe(200);
  });

  it('is read while the server loads, and where an application mounts the server', async () => {
    const server = createServer(new LetterEngine({ aliases: ['a'] }), { prefix: '/api/llm', logLevel: 'silent' });
    const ask = (path: string, headers: Record<string, string> = {}) =>
      server.fetch(
        new Request(`http://localhost${path}`, { method: 'POST', headers, body: Buffer.from(JSON.stringify(body)) }),
      );
    expect((await ask('/api/llm/api/chat')).status).toBe(200);
    expect(await (await ask('/api/llm/api/none')).json()).toEqual({ error: expect.any(String) });
    expect((await ask('/api/llm/v1/chat/completions')).status).toBe(415);
    expect(await (await ask('/api/llm/v1/none', json)).json()).toMatchObject({ error: { code: expect.any(String) } });

    const loadStatus = () => ({ phase: 'weights', message: 'It loads.', retryAfterSeconds: 1 }) as const;
    const loading = new Server({ loadStatus }, { version: '0', logLevel: 'silent' });
    cleanups.push(() => loading.close());
    const origin = `http://127.0.0.1:${await loading.listen(0, '127.0.0.1')}`;
    const answer = send(`${origin}/api/chat`, body, {});
    await loading.serve(new LetterEngine({ aliases: ['a'] }));
    expect((await answer).status).toBe(200);
  });
});

it('a pull shows the bytes of the download, and the error of the hub', async () => {
  const origin = await start('several models');
  const client = new Ollama({ host: origin });
  const lines = [];
  for await (const line of await client.pull({ model: 'a-alias', stream: true })) lines.push(line);
  const status = expect.stringMatching(/^pulling [0-9a-f]{12}$/);
  const digest = expect.stringMatching(/^sha256:[0-9a-f]{64}$/);
  expect(lines).toEqual([
    { status: 'pulling manifest' },
    { status, digest, total: 2, completed: 1 },
    { status, digest, total: 2, completed: 2 },
    { status: 'success' },
  ]);
  await expect(client.pull({ model: 'b' })).rejects.toMatchObject({
    status_code: 502,
    message: expect.stringMatching(/hub.*404/),
  });
  const text = await (
    await fetch(`${origin}/api/pull`, { method: 'POST', headers: json, body: '{"name":"b"}' })
  ).text();
  expect(
    text
      .trimEnd()
      .split('\n')
      .map((line) => JSON.parse(line)),
  ).toEqual([{ status: 'pulling manifest' }, { error: expect.stringMatching(/hub.*404/) }]);
});

it('a model that is not loaded is shown without a load', async () => {
  const here = await serveModelsHere({});
  cleanups.push(here.close);
  expect((await send(`${here.origin}/api/show`, { name: 'a' })).body).toMatchObject({ details: { format: 'gguf' } });
  expect(here.started).toEqual([]);
  await send(`${here.origin}/api/generate`, { model: 'a' });
  const { body } = await send(`${here.origin}/api/show`, { model: 'a' });
  expect(body.model_info).toMatchObject({ 'letters.context_length': 4096 });
});
