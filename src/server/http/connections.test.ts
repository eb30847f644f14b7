import { once } from 'node:events';
import { connect, type Socket } from 'node:net';
import { text } from 'node:stream/consumers';
import { setTimeout as sleep } from 'node:timers/promises';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { afterEach, describe, expect, it, vi } from 'vitest';
import { LetterEngine, type LetterEngineOptions, lettersOf } from '../../../test/support/letter-engine.ts';
import { Server, type ServerOptions } from '../server.ts';

setFlagsFromString('--expose-gc');
const collectGarbage = runInNewContext('gc') as () => void;

/** Long enough for a slow machine; a successful test does not wait so long. */
const PATIENCE = { timeout: 120_000, interval: 5 };

const cleanups: (() => unknown)[] = [];
afterEach(async () => {
  for (const cleanup of cleanups.splice(0).reverse()) await cleanup();
});

async function serve(engineOptions: LetterEngineOptions = {}, options: Partial<ServerOptions> = {}) {
  const engine = new LetterEngine(engineOptions);
  const lines: string[] = [];
  const server = new Server(engine, {
    version: '1.2.3',
    logDestination: { write: (line) => void lines.push(line) },
    ...options,
  });
  const port = await server.listen(0, '127.0.0.1');
  cleanups.push(() => server.app.close());
  return { engine, server, port, lines };
}

/** A request on a plain socket, so that the test decides when to read and when to close it. */
function ask(port: number, body: object, path = '/v1/completions'): Socket {
  const text = JSON.stringify(body);
  const socket = connect(port, '127.0.0.1');
  cleanups.push(() => socket.destroy());
  socket.write(
    `POST ${path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: ${text.length}\r\n\r\n${text}`,
  );
  return socket;
}

/** Reads until the text matches `pattern`. */
async function readUntil(socket: Socket, pattern: RegExp): Promise<string> {
  let text = '';
  while (!pattern.test(text)) text += String(await once(socket, 'data'));
  return text;
}

/** Lets one step run for each call of `step`. */
function gate() {
  let open: () => void = () => {};
  let closed = new Promise<void>((resolve) => {
    open = resolve;
  });
  return {
    beforeStep: () => closed,
    step() {
      const opened = open;
      closed = new Promise((resolve) => {
        open = resolve;
      });
      opened();
    },
  };
}

describe('a client that closes its connection', () => {
  it('in the middle of a stream aborts its request', async () => {
    const { beforeStep, step } = gate();
    const { engine, port, lines } = await serve({ beforeStep });
    const socket = ask(port, { prompt: 'abc', max_tokens: 50, stream: true });
    await vi.waitFor(() => expect(engine.stats().running).toBe(1), PATIENCE);
    step();
    await readUntil(socket, new RegExp(`"text":"${lettersOf(3, 1)}"`));
    socket.destroy();
    await vi.waitFor(() => expect(engine.stats()).toMatchObject({ running: 0, aborts: 1 }), PATIENCE);
    await vi.waitFor(() => expect(lines.at(-1)).toContain('"msg":"request"'), PATIENCE);
    expect(JSON.parse(lines.at(-1)!)).toMatchObject({ clientGone: true, outputTokens: 1, finish: 'aborted' });
  });

  it('before the answer aborts its request', async () => {
    const { beforeStep } = gate();
    const { engine, port } = await serve({ beforeStep });
    for (const stream of [false, true]) {
      const socket = ask(port, { prompt: ['a', 'b'], n: 2, max_tokens: 50, stream });
      await vi.waitFor(() => expect(engine.stats().running).toBe(2), PATIENCE);
      socket.destroy();
      await vi.waitFor(() => expect(engine.stats().running).toBe(0), PATIENCE);
    }
    expect(engine.stats().aborts).toBe(4);
  });

  it('does not affect other requests', async () => {
    const { beforeStep, step } = gate();
    const { engine, port } = await serve({ beforeStep });
    const leaver = ask(port, { prompt: 'ab', max_tokens: 50, stream: true });
    const stayer = ask(port, { prompt: 'abc', max_tokens: 2, stream: true });
    await vi.waitFor(() => expect(engine.stats().running).toBe(2), PATIENCE);
    leaver.destroy();
    await vi.waitFor(() => expect(engine.stats().running).toBe(1), PATIENCE);
    const answer = readUntil(stayer, /\[DONE\]/);
    const stepping = setInterval(step, 1);
    cleanups.push(() => clearInterval(stepping));
    expect(await answer).toContain('"finish_reason":"length"');
  });
});

describe('a client that does not read', () => {
  const many = 100_000;
  const endless = { prompt: 'abc', max_tokens: many, stream: true };

  it('slows down only its own request, which is aborted after the client timeout', async () => {
    const { engine, port } = await serve({ maxModelLen: 2 * many }, { clientTimeoutMs: 500 });
    const socket = ask(port, endless);
    socket.pause();
    // The stream is stalled when the engine generates no more tokens although most of them are left.
    await vi.waitFor(() => expect(engine.stats().running).toBe(1), PATIENCE);
    let before = -1;
    while (engine.stats().generatedTokens !== before) {
      before = engine.stats().generatedTokens;
      await sleep(50);
    }
    expect(before).toBeLessThan(many);
    const other = await fetch(`http://127.0.0.1:${port}/v1/completions`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: '{"prompt":"abc"}',
    });
    expect(other.status).toBe(200);
    await vi.waitFor(() => expect(engine.stats()).toMatchObject({ running: 0, aborts: 1 }), PATIENCE);
  });

  it('gets the whole stream if it reads again', async () => {
    const { engine, port } = await serve({ maxModelLen: 2 * many });
    const socket = ask(port, { ...endless, max_tokens: 60_000 });
    socket.pause();
    await vi.waitFor(() => expect(engine.stats().generatedTokens).toBeGreaterThan(100), PATIENCE);
    const pieces: Buffer[] = [];
    socket.on('data', (piece) => pieces.push(piece));
    socket.resume();
    await vi.waitFor(() => expect(pieces.at(-1)?.includes('[DONE]')).toBe(true), PATIENCE);
    expect(Buffer.concat(pieces).toString().split('"index":0').length - 1).toBe(60_000);
  });
});

describe('a long time without an event', () => {
  it('has comments, which do not change the stream', async () => {
    const { beforeStep, step } = gate();
    const { engine, port } = await serve({ beforeStep }, { keepAliveMs: 20 });
    const socket = ask(port, { prompt: 'abc', max_tokens: 1, stream: true });
    expect(await readUntil(socket, /: waiting\n\n[\s\S]*: waiting\n\n/)).toMatch(/^HTTP\/1.1 200 /);
    step();
    expect(await readUntil(socket, /\[DONE\]/)).toContain(`"text":"${lettersOf(3, 1)}"`);
    expect(engine.stats().running).toBe(0);
  });
});

describe('a shutdown', () => {
  it('lets running requests end and refuses new ones', async () => {
    const { beforeStep, step } = gate();
    const { engine, server, port } = await serve({ beforeStep });
    const socket = ask(port, { prompt: 'abc', max_tokens: 3, stream: true });
    await vi.waitFor(() => expect(engine.stats().running).toBe(1), PATIENCE);
    const outcome = server.drain(30_000);
    expect((await fetch(`http://127.0.0.1:${port}/health`)).status).toBe(503);
    const answer = readUntil(socket, /\[DONE\]/);
    const stepping = setInterval(step, 1);
    cleanups.push(() => clearInterval(stepping));
    expect(await answer).toContain('"finish_reason":"length"');
    expect(await outcome).toEqual({ how: 'drained' });
    await expect(fetch(`http://127.0.0.1:${port}/health`)).rejects.toThrow();
  });

  it('waits until a slow reader has read its response, and not longer', async () => {
    const long = 'x'.repeat(1_000_000);
    const { engine, server, port } = await serve({ maxModelLen: 2 * long.length }, { requestMaxBytes: 2 ** 30 });
    const socket = ask(port, { prompt: long, max_tokens: 1, echo: true, n: 32 });
    socket.pause();
    await vi.waitFor(() => expect(engine.stats()).toMatchObject({ running: 0, generatedTokens: 32 }), PATIENCE);
    let bytes = 0;
    const outcome = server.drain(600_000).then(({ how }) => ({ how, bytesRead: bytes }));
    socket.on('data', (piece) => {
      bytes += piece.length;
    });
    socket.resume();
    await once(socket, 'end');
    expect(bytes).toBeGreaterThan(32 * long.length);
    const { how, bytesRead } = await outcome;
    expect(how).toBe('drained');
    // The rest was in the buffers of the two sockets.
    expect(bytesRead).toBeGreaterThan(8 * long.length);
  });

  it('aborts and counts the requests that do not end in time', async () => {
    const { engine, server, port } = await serve({ beforeStep: gate().beforeStep });
    const [first, second] = [ask(port, { prompt: 'abc', stream: true }), ask(port, { prompt: 'abc' })];
    const closed = Promise.all([once(first, 'close'), once(second, 'close')]);
    for (const socket of [first, second]) socket.resume();
    await vi.waitFor(() => expect(engine.stats().running).toBe(2), PATIENCE);
    const outcome = server.drain(100);
    // The timer of the deadline must survive a garbage collection.
    collectGarbage();
    expect(await outcome).toEqual({ how: 'cut', aborted: 2 });
    await closed;
    expect(engine.stats()).toMatchObject({ running: 0, aborts: 2 });
  });

  it.each(['/v1/messages', '/api/chat'])('that cuts an answer of %s ends it with an error', async (path) => {
    const { engine, server, port } = await serve({ beforeStep: gate().beforeStep, maxModelLen: 5000 });
    const asked = { model: 'letters', messages: [{ role: 'user', content: 'a' }], max_tokens: 9, options: {} };
    const answers = [false, true].map((stream) => text(ask(port, { ...asked, stream }, path)));
    await vi.waitFor(() => expect(engine.stats().running).toBe(2), PATIENCE);
    await server.drain(0);
    for (const answer of await Promise.all(answers)) expect(answer).toContain('The engine is shutting down');
  });

  it('closes a keep-alive connection after its running response', async () => {
    const { beforeStep, step } = gate();
    const { engine, server, port } = await serve({ beforeStep });
    const socket = ask(port, { prompt: 'abc', max_tokens: 1 });
    await vi.waitFor(() => expect(engine.stats().running).toBe(1), PATIENCE);
    const outcome = server.drain(86_400_000);
    const answer = readUntil(socket, /"usage"/);
    step();
    expect(await answer).toMatch(/^HTTP\/1\.1 200 OK[\s\S]*\r\nconnection: close\r\n/i);
    expect(await outcome).toEqual({ how: 'drained' });
  });
});
