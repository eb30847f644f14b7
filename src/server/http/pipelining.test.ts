/** Requests that share one connection, which ends at any moment: each of them ends, and its place is free for others. */
import { once } from 'node:events';
import { connect, type Socket } from 'node:net';
import { afterEach, describe, expect, it } from 'vitest';
import { toyEngine } from '../../../test/support/toy-model.ts';
import { until } from '../../../test/support/until.ts';
import { Server } from '../server.ts';
import type { KeyLimit } from './key-queues.ts';

const cleanups: (() => unknown)[] = [];
afterEach(async () => {
  for (const cleanup of cleanups.splice(0).reverse()) await cleanup();
});

const roomy: Omit<KeyLimit, 'name' | 'key'> = { maxRunning: 100 };

/** A real engine whose steps run while its gate is open, behind a key with limits. */
async function serve({ limit = roomy, maxNumSeqs = 8 } = {}) {
  let open: () => void = () => undefined;
  let isOpen: Promise<void> = Promise.resolve();
  const gate = {
    close: () => {
      isOpen = new Promise((resolve) => {
        open = resolve;
      });
    },
    open: () => open(),
  };
  const { engine, executor } = toyEngine({ beforeStep: () => isOpen, scheduler: { maxNumSeqs, maxModelLen: 512 } });
  const server = new Server(engine, {
    version: '1',
    logLevel: 'silent',
    apiKeyLimits: [{ name: 'team', key: 'k', ...limit }],
  });
  const port = await server.listen(0, '127.0.0.1');
  cleanups.push(
    () => engine.close(),
    () => server.close(),
    gate.open,
  );
  const client = async (): Promise<Socket> => {
    const socket = connect({ port, host: '127.0.0.1', noDelay: true });
    socket.on('error', () => undefined);
    cleanups.push(() => socket.destroy());
    await once(socket, 'connect');
    return socket;
  };
  const places = async (): Promise<string> => {
    const text = await (await fetch(`http://127.0.0.1:${port}/metrics`)).text();
    return [...text.matchAll(/^kvasir:key_requests_(?:running|waiting)\{.*\} (\d+)$/gm)].map(([, n]) => n).join();
  };
  const active = (): number => {
    const { running, waiting } = engine.stats();
    return running + waiting;
  };
  const placesBecome = async (expected: string): Promise<void> => {
    while ((await places()) !== expected) await new Promise((resolve) => setTimeout(resolve, 1));
  };
  /** No request is left, no place is taken, and a shutdown has nothing to wait for. */
  const isFree = async (): Promise<void> => {
    await until(() => active() === 0);
    await placesBecome('0,0');
    gate.open();
    expect(await server.drain(86_400_000)).toEqual({ how: 'drained' });
  };
  return { engine, executor, server, gate, client, active, placesBecome, isFree };
}

function bytesOf(path: string, body: object): string {
  const text = JSON.stringify(body);
  return `POST ${path} HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer k\r\ncontent-type: application/json\r\ncontent-length: ${text.length}\r\n\r\n${text}`;
}

const completion = (body: object = {}): string =>
  bytesOf('/v1/completions', { prompt: 'abc', max_tokens: 400, ignore_eos: true, ...body });

/** One request of each kind that computes, in an order in which each comes first once. */
function mixed(first: number): string {
  const all = [
    completion({ stream: true }),
    completion({ n: 2, prompt: ['ab', 'cd'] }),
    bytesOf('/v1/chat/completions', { messages: [{ role: 'user', content: 'hi' }], max_tokens: 300, ignore_eos: true }),
    bytesOf('/v1/responses', { input: 'hi', max_output_tokens: 300, ignore_eos: true, stream: true }),
    bytesOf('/v1/responses', { input: 'hi', max_output_tokens: 300, ignore_eos: true }),
  ];
  return [...all.slice(first), ...all.slice(0, first)].join('');
}
/** Completions of `mixed`. */
const mixedCount = 8;

it.each([
  ['that are not HTTP', 'HELLO\r\n\r\n', 400],
  ['with too large a head', `GET /health HTTP/1.1\r\nhost: localhost\r\nx: ${'a'.repeat(100_000)}\r\n\r\n`, 431],
])('bytes %s after a request do not change its answer, and are answered after it', async (_, bytes, status) => {
  const { gate, client, active } = await serve();
  for (const isStream of [true, false]) {
    gate.close();
    const socket = await client();
    let received = '';
    socket.on('data', (data) => {
      received += data;
    });
    socket.write(`${completion({ stream: isStream, max_tokens: 5 })}${bytes}`);
    await until(() => active() === 1);
    gate.open();
    await once(socket, 'close');
    const [first, second, ...more] = received.split('HTTP/1.1 ').slice(1);
    expect(more).toEqual([]);
    expect(first).toMatch(/^200 /);
    expect(first).toContain(isStream ? 'data: [DONE]\n\n\r\n0\r\n\r\n' : '"completion_tokens":5');
    expect(second).toMatch(new RegExp(`^${status} `));
  }
});

const leaves: readonly (readonly [string, (socket: Socket) => void])[] = [
  ['closes its connection', (socket) => socket.destroy()],
  ['resets its connection', (socket) => socket.resetAndDestroy()],
  ['ends its side', (socket) => socket.end()],
];

describe.each(leaves)('a client with several requests on one connection that %s', (_, leave) => {
  it.each([0, 1, 2, 3, 4])('while they run ends all of them (%i)', async (first) => {
    const { gate, client, active, isFree } = await serve();
    gate.close();
    const socket = await client();
    socket.write(mixed(first));
    await until(() => active() === mixedCount);
    leave(socket);
    await isFree();
  });

  it('while the first one streams ends all of them', async () => {
    const { client, active, isFree } = await serve();
    const socket = await client();
    socket.write(mixed(0));
    await once(socket, 'data');
    await until(() => active() === mixedCount);
    leave(socket);
    await isFree();
  });

  it('while they wait for running slots of the engine ends all of them', async () => {
    const { gate, client, active, engine, isFree } = await serve({ maxNumSeqs: 1 });
    gate.close();
    const socket = await client();
    socket.write(mixed(0));
    await until(() => active() === mixedCount && engine.stats().running === 1);
    leave(socket);
    await isFree();
  });

  it('while they wait for the limit of their key frees every place', async () => {
    const { gate, client, engine, placesBecome, isFree } = await serve({ limit: { maxRunning: 4, maxWaiting: 4 } });
    gate.close();
    const [staying, leaving] = [await client(), await client()];
    staying.write(completion({ n: 4 }));
    await placesBecome('4,0');
    leaving.write(completion() + completion({ n: 2 }) + completion({ stream: true }));
    await placesBecome('4,4');
    leave(leaving);
    await placesBecome('4,0');
    leave(staying);
    await isFree();
    expect(engine.stats().aborts).toBe(4);
  });

  it('within the body of the last one ends all of them', async () => {
    const { gate, client, active, isFree } = await serve();
    gate.close();
    const socket = await client();
    socket.write(completion() + completion() + completion().slice(0, -10));
    await until(() => active() === 2);
    leave(socket);
    await isFree();
  });

  it('within the head of the last one ends all of them', async () => {
    const { gate, client, active, isFree } = await serve();
    gate.close();
    const socket = await client();
    socket.write(completion() + completion() + completion().slice(0, 30));
    await until(() => active() === 2);
    leave(socket);
    await isFree();
  });

  it('with the last byte of an answer ends the requests behind it', async () => {
    const { gate, client, active, engine, isFree } = await serve();
    const socket = await client();
    let text = '';
    socket.on('data', (piece) => {
      text += piece;
    });
    socket.write(completion({ max_tokens: 3, stream: true }));
    await until(() => text.includes('[DONE]') && active() === 0);
    gate.close();
    text = '';
    socket.write(completion({ max_tokens: 1, stream: true }) + completion() + completion());
    await until(() => active() === 3);
    socket.on('data', () => text.includes('[DONE]') && leave(socket));
    gate.open();
    await isFree();
    expect(engine.stats().aborts).toBe(2);
  });

  it('and does not read its answers ends all of them', async () => {
    const { client, active, isFree } = await serve();
    const socket = await client();
    socket.pause();
    // More than the buffers of both sockets take.
    const echo = completion({ prompt: 'x'.repeat(400), max_tokens: 1, echo: true, n: 100 });
    socket.write(echo.repeat(10) + completion());
    await until(() => active() > 0);
    leave(socket);
    // A client that has only ended its side can still read.
    socket.resume();
    await isFree();
  });

  it('frees the places of responses in the background when they have ended', async () => {
    const { gate, client, active, placesBecome, isFree } = await serve({ limit: { maxRunning: 2, maxWaiting: 2 } });
    gate.close();
    const socket = await client();
    const background = bytesOf('/v1/responses', { input: 'hi', max_output_tokens: 20, background: true });
    socket.write(background.repeat(5));
    // The fifth is refused.
    await placesBecome('2,2');
    leave(socket);
    await until(() => active() === 2);
    gate.open();
    await isFree();
  });
});

it('a client that sends several requests gets their answers in order', async () => {
  const { client, isFree } = await serve();
  const socket = await client();
  let text = '';
  socket.on('data', (piece) => {
    text += piece;
  });
  socket.write([1, 5, 2].map((max) => completion({ max_tokens: max })).join(''));
  await until(() => text.split('"usage"').length === 4);
  expect([...text.matchAll(/"completion_tokens":(\d+)/g)].map(([, count]) => Number(count))).toEqual([1, 5, 2]);
  await isFree();
});

it('a shutdown lets all requests of a connection end, and then closes it', async () => {
  const { gate, client, active, server } = await serve();
  gate.close();
  const socket = await client();
  let text = '';
  socket.on('data', (piece) => {
    text += piece;
  });
  socket.write([9, 5, 2].map((max) => completion({ max_tokens: max })).join(''));
  await until(() => active() === 3);
  const drained = server.drain(86_400_000);
  gate.open();
  await once(socket, 'end');
  expect(await drained).toEqual({ how: 'drained' });
  expect([...text.matchAll(/"completion_tokens":(\d+)/g)].map(([, count]) => Number(count))).toEqual([9, 5, 2]);
});
