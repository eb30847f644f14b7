import { EventEmitter, once } from 'node:events';
import { type IncomingMessage, request } from 'node:http';
import { connect, createServer } from 'node:net';
import { Readable } from 'node:stream';
import { afterEach, describe, expect, it, vi } from 'vitest';
import { lettersOf } from '../../test/support/letter-engine.ts';
import { runHere } from '../../test/support/run-here.ts';
import { serveHere } from '../../test/support/serve-here.ts';
import { invalidParameter } from '../core/errors.ts';
import { runCli } from './run-cli.ts';
import { serveCommand } from './serve.ts';

const patience = { timeout: 120_000, interval: 5 };
const cleanups: (() => unknown)[] = [];
afterEach(async () => {
  for (const cleanup of cleanups.splice(0).reverse()) await cleanup();
});

async function startServer(...flags: string[]) {
  const server = await serveHere(['--max-load-wait', '0', ...flags]);
  const { origin } = server;
  cleanups.push(server.close);
  const get = async (path: string, init: RequestInit = {}) => {
    const response = await fetch(origin + path, init);
    const text = await response.text();
    const isJson = response.headers.get('content-type')?.startsWith('application/json') === true;
    return { status: response.status, headers: response.headers, body: isJson ? JSON.parse(text) : text };
  };
  const complete = (headers: Record<string, string> = {}) =>
    get('/v1/completions', {
      method: 'POST',
      headers: { 'content-type': 'application/json', ...headers },
      body: JSON.stringify({ prompt: 'abc', max_tokens: 4 }),
    });
  return { ...server, get, complete };
}

describe('a server that loads its model', () => {
  it('answers /health with the progress, and requests with a time to try again; then it serves on the same connection', async () => {
    const { origin, get, complete, loaded, engine, options, stderr } = await startServer();
    expect(await get('/health')).toMatchObject({
      status: 503,
      body: { status: 'loading', phase: 'starting', message: 'The server opens m.gguf.' },
    });
    options.onProgress?.(250, 1000);
    const health = await get('/health');
    expect(health).toMatchObject({
      status: 503,
      body: { status: 'loading', phase: 'weights', doneBytes: 250, totalBytes: 1000 },
    });
    expect(health.body.message).toBe('The server loads m.gguf: 25 %.');
    expect(Number(health.headers.get('retry-after'))).toBeGreaterThanOrEqual(1);
    expect((await get('/ping')).status).toBe(503);
    expect(await get('/health/live')).toMatchObject({ status: 200, body: { status: 'ok' } });
    expect(await get('/version')).toMatchObject({ status: 200, body: { version: '1.2.3' } });

    const socket = connect(Number(new URL(origin).port), '127.0.0.1');
    cleanups.push(() => socket.destroy());
    socket.write('GET /v1/models HTTP/1.1\r\nhost: localhost\r\n\r\n');
    expect(String((await once(socket, 'data'))[0])).toContain(' 503 ');
    const refused = await complete();
    // Probes are not in the log.
    expect(stderr()).not.toContain('path=/health');
    expect(stderr()).toContain('path=/v1/completions status=503 code=KVASIR_MODEL_LOADING');
    expect(refused).toMatchObject({
      status: 503,
      body: { error: { code: 'KVASIR_MODEL_LOADING', type: 'server_error' } },
    });
    expect(refused.body.error.message).toMatch(
      /^The model is not loaded yet\. The server loads m\.gguf: 25 %\. Send the request again in \d+ s\.$/,
    );
    expect(Number(refused.headers.get('retry-after'))).toBeGreaterThanOrEqual(1);
    options.onProgress?.(1000, 1000);
    expect((await get('/health')).body).toMatchObject({ phase: 'preparing' });

    loaded.resolve(engine);
    await vi.waitFor(
      async () => expect(await get('/health')).toMatchObject({ status: 200, body: { status: 'ok' } }),
      patience,
    );
    expect((await complete()).body.choices[0].text).toBe(lettersOf(3, 4));
    socket.write('GET /v1/models HTTP/1.1\r\nhost: localhost\r\n\r\n');
    expect(String((await once(socket, 'data'))[0])).toContain(' 200 ');
  });

  it('lets requests for work wait up to a limit, and answers them when the model is loaded', async () => {
    const { get, complete, loaded, engine, stderr } = await startServer(
      '--max-load-wait',
      '3600',
      '--log-level',
      'debug',
    );
    const waits = [complete({ 'x-request-id': 'waits' }), complete()];
    expect((await get('/v1/models')).status).toBe(503);
    expect((await get('/health')).status).toBe(503);
    loaded.resolve(engine);
    for (const { status, body } of await Promise.all(waits)) {
      expect(status).toBe(200);
      expect(body.choices[0].text).toBe(lettersOf(3, 4));
    }
    await vi.waitFor(() => expect(stderr()).toMatch(/id=waits /), patience);
    expect(stderr().match(/path=\/v1\/completions/g)!.length).toBe(2);
    const { body } = await get('/metrics');
    expect(body).toMatch(/^http_requests_total\{method="POST",handler="\/v1\/completions",status="2xx"\} 2$/m);
  });

  it('has metrics with the progress; requests are counted across the end of the load', async () => {
    const { get, complete, loaded, engine, options } = await startServer();
    options.onProgress?.(500, 1000);
    await complete();
    const before = (await get('/metrics')).body;
    expect(before).not.toContain('kvasir:healthy');
    expect(before).toMatch(/^kvasir:load_progress\{phase="weights"\} 0\.5$/m);
    expect(before).toMatch(/^process_resident_memory_bytes \d+$/m);
    expect((await get('/load')).status).toBe(503);
    loaded.resolve(engine);
    await vi.waitFor(async () => expect((await get('/health')).status).toBe(200), patience);
    await complete();
    const after = (await get('/metrics')).body;
    expect(after).toMatch(/^kvasir:healthy\{.*\} 1$/m);
    expect(after).not.toContain('kvasir:load_progress');
    expect(after).toMatch(/^http_requests_total\{method="POST",handler="none",status="5xx"\} 1$/m);
    expect(after).toMatch(/^http_requests_total\{method="POST",handler="\/v1\/completions",status="2xx"\} 1$/m);
  });

  it('shows the page, and wants the API key as later', async () => {
    const { get, complete } = await startServer('--api-key', 'sesame');
    expect(await get('/')).toMatchObject({ status: 200, body: expect.stringContaining('<title>Kvasir</title>') });
    expect((await complete()).status).toBe(401);
    expect((await complete({ authorization: 'Bearer sesame' })).status).toBe(503);
    expect((await get('/health')).status).toBe(503);
  });

  it('does not wait for the rest of a large body', async () => {
    const { origin } = await startServer();
    const socket = connect(Number(new URL(origin).port), '127.0.0.1');
    cleanups.push(() => socket.destroy());
    socket.write(
      'POST /v1/completions HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: 8000000\r\n\r\n{',
    );
    expect(String((await once(socket, 'data'))[0])).toContain(' 503 ');
  });

  it.each([
    ['SIGTERM', 143],
    ['SIGINT', 130],
    // Of Windows: Ctrl-Break.
    ['SIGBREAK', 143],
  ] as const)('ends at %s and closes its connections', async (signal, exitCode) => {
    const { origin, signals, code } = await startServer();
    const socket = connect(Number(new URL(origin).port), '127.0.0.1');
    await once(socket, 'connect');
    const closed = once(socket.resume(), 'close');
    signals.emit(signal);
    expect(await code).toBe(exitCode);
    await closed;
  });

  it('ends with the error of a load that fails', async () => {
    const { loaded, code, stderr, origin } = await startServer();
    loaded.reject(invalidParameter({ parameter: 'threads', expected: 'fewer', actual: 'more' }));
    expect(await code).toBe(2);
    expect(stderr()).toMatch(/^error: .*--threads/m);
    await expect(fetch(`${origin}/health`)).rejects.toThrow();
  });
});

it('names of the server are refused if they are no names', async () => {
  for (const names of ['http://kvasir', 'a b', 'kvasir/x', ''])
    expect(await runHere(['serve', '--port', '0', '--allowed-hosts', names])).toMatchObject({ code: 2 });
});

it('the server answers to the names of --allowed-hosts', async () => {
  const { origin } = await startServer('--allowed-hosts', 'kvasir,*.example');
  for (const [host, status] of [
    ['kvasir:8000', 503],
    ['a.example', 503],
    ['evil.test', 403],
  ] as const) {
    const [response] = (await once(request(`${origin}/health`, { headers: { host } }).end(), 'response')) as [
      IncomingMessage,
    ];
    expect([host, response.resume().statusCode]).toEqual([host, status]);
  }
});

it('a port in use is an error before the model is loaded', async () => {
  const other = createServer().listen(0, '127.0.0.1');
  await once(other, 'listening');
  cleanups.push(() => other.close());
  const address = other.address();
  const port = String(typeof address === 'object' ? address?.port : 0);
  let stderr = '';
  const context = {
    version: '1.2.3',
    createEngine: () => Promise.reject(new Error('the model must not be loaded')),
    stdout: { write: () => undefined },
    stderr: { write: (text: string) => (stderr += text) },
    stdin: Readable.from([]),
    signals: new EventEmitter(),
    exitNow: () => undefined,
  };
  expect(await runCli(['serve', '--port', port], context, [serveCommand])).toBe(1);
  expect(stderr).toMatch(new RegExp(`^error: Port ${port} on 127\\.0\\.0\\.1 is in use\\.`));
});

describe('the limits of requests', () => {
  it('come from the command line', async () => {
    const memory = ['--max-request-memory', '4200', '--max-total-request-memory', '1MiB', '--client-timeout', '1'];
    const { origin, complete, loaded, engine } = await startServer(...memory);
    loaded.resolve(engine);
    await vi.waitFor(async () => expect((await complete()).status).not.toBe(503), patience);
    // The prompt has 3 tokens, and the answer 4: 4096 + 7 * 16 bytes.
    expect((await complete()).body.error.message).toMatch(/may need 4208 bytes of memory; the limit is 4200 /);

    const socket = connect(Number(new URL(origin).port), '127.0.0.1');
    cleanups.push(() => socket.destroy());
    socket.write(
      'POST /v1/completions HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: 9\r\n\r\n{',
    );
    expect(String((await once(socket, 'data'))[0])).toMatch(/^HTTP\/1.1 408 .*less than 2048 bytes in 1 s/s);
  });
});
