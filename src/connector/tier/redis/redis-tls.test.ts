import { once } from 'node:events';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createServer, type Server } from 'node:tls';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { type CertificateFiles, hasOpenssl, makeCertificate } from '../../../../test/support/certificates.ts';
import { needs } from '../../../../test/support/needs.ts';
import { freePort, hasRedisServer, needsRedisServer, RedisServer } from '../../../../test/support/redis-server.ts';
import { suiteBytes, suiteIdentity, suiteKey } from '../tier.suite.ts';
import { RedisTier } from './tier-redis.ts';

const blockBytes = 1024 ** 2;
const signal = new AbortController().signal;
const bytesOf = (name: string): Uint8Array => suiteBytes(suiteKey(name), blockBytes);
const variable = 'NODE_TLS_REJECT_UNAUTHORIZED';

let folder: string;
let files: CertificateFiles;
let before: string | undefined;
const tiers: RedisTier[] = [];

beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), 'kvasir-redis-tls-'));
  files = makeCertificate(folder, 'redis');
  // Node reads the certificates that it trusts when it starts.
  before = process.env[variable];
  process.env[variable] = '0';
});
afterAll(() => {
  if (before === undefined) delete process.env[variable];
  else process.env[variable] = before;
  rmSync(folder, { recursive: true });
});
afterEach(async () => {
  for (const tier of tiers.splice(0)) await tier.close();
});

async function open(port: number): Promise<RedisTier> {
  const identity = { ...suiteIdentity, blockBytes };
  const tier = await RedisTier.open({ url: `rediss://127.0.0.1:${port}`, identity, commandTimeoutMs: 60_000 });
  tiers.push(tier);
  return tier;
}

/** Accepts the commands with which a tier begins. Then each answer is `$536870912000` and bytes without end. */
async function endlessServer(): Promise<{ readonly server: Server; readonly sentMax: () => number }> {
  let sentMax = 0;
  const server = createServer({ cert: readFileSync(files.certificate), key: readFileSync(files.key) }, (socket) => {
    let answers = 0;
    const send = (): void => {
      while (!socket.destroyed && socket.write(Buffer.alloc(65_536)));
      sentMax = Math.max(sentMax, socket.bytesWritten);
    };
    socket.on('error', () => undefined);
    socket.on('drain', send);
    socket.on('data', (bytes) => {
      // A command is an array of texts.
      for (const command of String(bytes).match(/\*\d+\r\n\$\d+\r\n[a-z]+/gi) ?? []) {
        const [, name = ''] = /([a-z]+)$/i.exec(command) ?? [];
        if (/^(client|hello|select|auth)$/i.test(name)) socket.write('+OK\r\n');
        else if (/^getex$/i.test(name)) socket.write(answers++ === 0 ? '$-1\r\n' : '$536870912000\r\n');
        else socket.write(/^set$/i.test(name) ? '+OK\r\n' : ':1\r\n');
      }
      if (answers > 1) send();
    });
  }).listen(0, '127.0.0.1');
  await once(server, 'listening');
  return { server, sentMax: () => sentMax };
}

const tools = { ...needs(hasRedisServer, needsRedisServer), ...needs(hasOpenssl, 'no openssl') };
describe('a Redis server with TLS', tools, () => {
  it('stores blocks and loads them', async () => {
    const port = await freePort();
    const settings = ['--port', '0', '--tls-port', `${port}`, '--tls-auth-clients', 'no'];
    const certificate = ['--tls-cert-file', files.certificate, '--tls-key-file', files.key];
    const server = await RedisServer.start([...settings, ...certificate]);
    try {
      const tier = await open(port);
      const names = ['a', 'b', 'c', 'd', 'e'];
      for (const name of names) expect(await tier.store(suiteKey(name), bytesOf(name), signal)).toBe('stored');
      const loads = names.map(async (name) => {
        const into = new Uint8Array(blockBytes);
        expect(await tier.load(suiteKey(name), into, signal)).toBeUndefined();
        expect(Buffer.compare(into, bytesOf(name))).toBe(0);
      });
      await Promise.all(loads);
      expect(await tier.load(suiteKey('f'), new Uint8Array(blockBytes), signal)).toBe('missing');
    } finally {
      await server.stop();
    }
  });

  it('that sends a value without end loses its connection, and the load fails', async () => {
    const { server, sentMax } = await endlessServer();
    try {
      const tier = await open((server.address() as AddressInfo).port);
      const load = tier.load(suiteKey('a'), new Uint8Array(blockBytes), signal);
      await expect(load).rejects.toMatchObject({ code: 'KVASIR_TIER_FAILED' });
      // What fits into the buffers of two sockets.
      expect(sentMax()).toBeLessThan(64 * 1024 ** 2);
    } finally {
      server.close();
    }
  });
});
