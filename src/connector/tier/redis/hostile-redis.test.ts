/** A server that answers anything: loads fail, the event loop goes on, and the tier connects again. */
import { once } from 'node:events';
import type { AddressInfo } from 'node:net';
import { createServer, type Socket } from 'node:net';
import { afterEach, beforeEach, expect, it } from 'vitest';
import { suiteIdentity, suiteKey } from '../tier.suite.ts';
import { RedisTier } from './tier-redis.ts';

const blockBytes = 4096;
const signal = new AbortController().signal;

/** Answers each command as Redis does, but commands for blocks with what `hostile` writes. */
class HostileRedis {
  connections = 0;
  sentBytes = 0;
  readonly server = createServer((socket) => {
    this.connections++;
    socket.on('error', () => undefined);
    let text = '';
    socket.on('data', (bytes) => {
      text += bytes.toString('latin1');
      for (let match = command.exec(text); match !== null; match = command.exec(text)) {
        text = text.slice(match[0].length);
        const [name = '', key = ''] = match[0]
          .split('\r\n')
          .filter((_, i) => i % 2 === 0)
          .slice(1);
        if (name.toLowerCase() === 'getex' && !key.includes('probe')) this.hostile(socket);
        else socket.write(answers[name.toLowerCase()] ?? '+OK\r\n');
      }
    });
  });
  hostile: (socket: Socket) => void = (socket) => void socket.write('$-1\r\n');

  /** Writes the same bytes so many times, or until the client closes the connection. */
  pour(socket: Socket, part: string, times: number): void {
    const bytes = Buffer.from(part);
    let left = times;
    const more = (): void => {
      while (left-- > 0 && !socket.destroyed) {
        this.sentBytes += bytes.length;
        if (!socket.write(bytes)) return;
      }
    };
    socket.on('drain', more);
    more();
  }
}

const command = /^\*\d+\r\n(?:\$\d+\r\n[^\r]*\r\n)+?(?=\*|$)/;
const answers: Readonly<Record<string, string>> = {
  exists: ':0\r\n',
  getex: '$-1\r\n',
  expire: ':0\r\n',
  unlink: ':0\r\n',
};

let redis: HostileRedis;
let tier: RedisTier;
beforeEach(async () => {
  redis = new HostileRedis();
  await once(redis.server.listen(0, '127.0.0.1'), 'listening');
  const url = `redis://127.0.0.1:${(redis.server.address() as AddressInfo).port}`;
  tier = await RedisTier.open({ url, identity: { ...suiteIdentity, blockBytes }, commandTimeoutMs: 60_000 });
});
afterEach(async () => {
  await tier.close();
  redis.server.close();
});

const load = () => tier.load(suiteKey('a'), new Uint8Array(blockBytes), signal);

it.each([
  ['nested arrays', '*1\r\n'.repeat(9), 1],
  ['maps', '%1\r\n:1\r\n:1\r\n', 1],
  ['sets', '~1\r\n:1\r\n', 1],
  ['pushes', '>1\r\n:1\r\n', 1],
  ['attributes', '|1\r\n:1\r\n:1\r\n', 1],
  ['a streamed array', '*?\r\n', 1],
  ['an array of many elements', '*600000\r\n', 1],
  ['a line without an end', 'x'.repeat(4_000), 20_000],
  ['a big number', '(1234567890\r\n', 1],
  ['a text with a length', '=1\r\nx\r\n', 1],
])('%s: the connection ends after few bytes, and the next one works', async (_, part, times) => {
  redis.hostile = (socket) => redis.pour(socket, part, times);
  // The connection is closed before the client reads these bytes. It would refuse longer replies of these kinds too late.
  await expect(load()).rejects.toMatchObject({
    code: 'KVASIR_TIER_FAILED',
    message: expect.stringContaining('the connection is closed'),
  });
  // What the sockets of both sides keep.
  expect(redis.sentBytes).toBeLessThan(60_000_000);
  redis.hostile = (socket) => void socket.write('$-1\r\n');
  await expect.poll(() => load().catch(() => 'not connected'), { timeout: 60_000 }).toBe('missing');
  expect(redis.connections).toBeGreaterThan(1);
});
