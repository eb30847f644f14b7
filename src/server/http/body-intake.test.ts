import { once } from 'node:events';
import { connect, type Socket } from 'node:net';
import { afterEach, describe, expect, it } from 'vitest';
import { LetterEngine } from '../../../test/support/letter-engine.ts';
import { needs } from '../../../test/support/needs.ts';
import { Server, type ServerOptions } from '../server.ts';

const cleanups: (() => unknown)[] = [];
afterEach(async () => {
  for (const cleanup of cleanups.splice(0).reverse()) await cleanup();
});

/** Bodies in progress may have 512 KiB together. */
const BODY_MAX = 256 * 1024;
const PART = 100_000;

async function serve(options: Partial<ServerOptions> = {}) {
  const engine = new LetterEngine({ maxModelLen: 2 * BODY_MAX });
  const common = { version: '1.2.3', logLevel: 'silent', bodyMaxBytes: BODY_MAX, requestsMaxBytes: 2 ** 22 } as const;
  const server = new Server(engine, { ...common, ...options });
  const port = await server.listen(0, '127.0.0.1');
  cleanups.push(() => server.app.close());
  const held = async (): Promise<number> => {
    const text = await (await fetch(`http://127.0.0.1:${port}/metrics`)).text();
    return Number(/^kvasir:request_memory_bytes (\d+)$/m.exec(text)![1]);
  };
  return { port, held };
}

interface Sent {
  readonly socket: Socket;
  /** What the server answered so far. */
  text(): string;
  readonly closed: Promise<unknown>;
}

const whole = JSON.stringify({ prompt: 'x'.repeat(2 * PART), max_tokens: 1 });
const headOf = (length: string): string =>
  `POST /v1/completions HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n${length}\r\n\r\n`;

/** Sends the head and the first bytes of a body, and waits until the server has received them. */
async function sendPart(port: number, bytes = PART, from = '127.0.0.1'): Promise<Sent> {
  const socket = connect({ port, host: '127.0.0.1', localAddress: from });
  cleanups.push(() => socket.destroy());
  let text = '';
  socket.on('error', () => undefined);
  socket.on('data', (piece) => {
    text += piece;
  });
  const closed = new Promise((resolve) => socket.once('close', resolve));
  await once(socket, 'connect');
  socket.write(headOf(`content-length: ${whole.length}`) + whole.slice(0, bytes));
  return { socket, text: () => text, closed };
}

const sendRest = async ({ socket, text }: Sent, bytes = PART): Promise<string> => {
  socket.write(whole.slice(bytes));
  await expect.poll(text).toMatch(/\r\n\r\n.*\}$/s);
  return text();
};

describe('bodies that are not received completely', () => {
  it('share a limit: the one that got bytes first is refused, others and new requests are not', async () => {
    const { port, held } = await serve();
    const sent: Sent[] = [];
    for (let i = 1; i <= 3; i++) {
      sent.push(await sendPart(port));
      await expect.poll(held).toBeGreaterThanOrEqual(i * PART);
    }
    // The first one gets bytes again, so the second one has waited longest.
    sent[0]!.socket.write(whole.slice(PART, 1.6 * PART));
    await expect.poll(held).toBeGreaterThanOrEqual(3.6 * PART);
    sent.push(await sendPart(port), await sendPart(port));
    await sent[1]!.closed;
    expect(sent[1]!.text()).toMatch(/^HTTP\/1.1 503 .*retry-after: 1.*KVASIR_REQUEST_MEMORY_FULL/s);
    expect(await sendRest(sent[0]!, 1.6 * PART)).toMatch(/^HTTP\/1.1 200 /);
    expect(await sendRest(sent[3]!)).toMatch(/^HTTP\/1.1 200 /);
    expect(await sendRest(sent[4]!)).toMatch(/^HTTP\/1.1 200 /);
    for (const { socket } of sent) socket.destroy();
    await expect.poll(held).toBe(0);
  });

  it(
    'are those of the client that has most bytes when one is refused',
    needs(process.platform === 'linux', 'two loopback addresses'),
    async () => {
      const { port, held } = await serve();
      const single = await sendPart(port, PART, '127.0.0.2');
      const many: Sent[] = [];
      for (let i = 1; i <= 8; i++) {
        many.push(await sendPart(port));
        await expect.poll(held).toBeGreaterThanOrEqual(Math.min(3, i + 1) * PART);
      }
      await Promise.all(many.slice(0, 3).map(({ closed }) => closed));
      expect(await sendRest(single)).toMatch(/^HTTP\/1.1 200 /);
    },
  );

  it('are refused when their client is too slow, and give their memory back', async () => {
    const { port, held } = await serve({ clientTimeoutMs: 100 });
    const sent = await sendPart(port, 100);
    await sent.closed;
    expect(sent.text()).toMatch(/^HTTP\/1.1 408 .*connection: close.*KVASIR_BODY_TOO_SLOW/s);
    await expect.poll(held).toBe(0);
  });

  it('need the memory of their bytes, also if they come one by one', async () => {
    const { port, held } = await serve();
    const socket = connect(port, '127.0.0.1');
    cleanups.push(() => socket.destroy());
    await once(socket, 'connect');
    socket.write(headOf('transfer-encoding: chunked'));
    const count = 10_000;
    socket.write(`1\r\n \r\n`.repeat(count));
    await expect.poll(held).toBeGreaterThanOrEqual(count);
    expect(await held()).toBeLessThanOrEqual(2 * count);
    socket.write(`1a\r\n${'{"prompt":"abc","n":1}    '}\r\n0\r\n\r\n`);
    const [piece] = await once(socket, 'data');
    expect(String(piece)).toMatch(/^HTTP\/1.1 200 /);
  });

  it('may be as large as one body, however small the memory is', async () => {
    const { port } = await serve({ requestsMaxBytes: 4096 });
    const sent = await sendPart(port);
    expect(await sendRest(sent)).toMatch(/^HTTP\/1.1 200 /);
  });
});
