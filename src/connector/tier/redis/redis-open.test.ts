/** Opening a tier: servers that refuse, and servers that are not there. */
import { createServer, type Server } from 'node:net';
import { inspect } from 'node:util';
import { Redis } from 'ioredis';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { needs } from '../../../../test/support/needs.ts';
import { freePort, hasRedisServer, needsRedisServer, RedisServer } from '../../../../test/support/redis-server.ts';
import { suiteBlockBytes, suiteBytes, suiteIdentity, suiteKey } from '../tier.suite.ts';
import { loadRedisLibrary } from './redis-client.ts';
import { RedisTier, type RedisTierOptions } from './tier-redis.ts';

const redis = needs(hasRedisServer, needsRedisServer);
const password = 'hunter-2';
const signal = new AbortController().signal;
const key = suiteKey('a');
const block = (): Uint8Array => new Uint8Array(suiteBlockBytes);
const open = (url: string, options: Partial<RedisTierOptions> = {}) =>
  RedisTier.open({ url, identity: suiteIdentity, commandTimeoutMs: 60_000, ...options });

let server: RedisServer;
let admin: Redis;
beforeAll(async () => {
  if (!hasRedisServer) return;
  server = await RedisServer.start(['--requirepass', password, '--databases', '4']);
  admin = new Redis(server.url, { password });
});
afterAll(async () => {
  if (!hasRedisServer) return;
  admin.disconnect();
  await server.stop();
});

const withUser = (user: string): string => server.url.replace('//', `//${user}@`);

/** A server that answers every command with the same text. */
async function parrot(answer: string): Promise<{ readonly url: string; readonly server: Server }> {
  const port = await freePort();
  const server = createServer((socket) => {
    socket.on('error', () => undefined);
    socket.on('data', () => socket.write(answer));
  }).listen(port, '127.0.0.1');
  return { url: `redis://u:${password}@127.0.0.1:${port}`, server };
}

async function refusal(url: string): Promise<Error> {
  try {
    await open(url);
  } catch (error) {
    expect(error).toMatchObject({ code: 'KVASIR_REDIS_REFUSED' });
    expect(inspect(error, { depth: 20, showHidden: true })).not.toContain('hunter');
    return error as Error;
  }
  throw new Error('the tier is open');
}

describe('a server that refuses is an error at the start', redis, () => {
  it('no password', async () => {
    expect((await refusal(server.url)).message).toMatch(
      /^The Redis server redis:\/\/127\.0\.0\.1:\d+ cannot be used: NOAUTH .*\. Put the password into the URL/,
    );
  });

  it('a wrong password', async () => {
    const { message } = await refusal(withUser(`:${password}3`));
    expect(message).toMatch(/WRONGPASS .*\. Correct the user and the password in the URL\.$/);
  });

  it('a user without permission', async () => {
    const rules = ['on', `>${password}`, '~kvasir:*', '+exists', '+getex', '+expire', '+unlink'];
    await admin.acl('SETUSER', 'reader', ...rules);
    const { message } = await refusal(withUser(`reader:${password}`));
    expect(message).toMatch(/NOPERM .*'set'.*\. Give the user these permissions: ACL SETUSER/);
  });

  it('a user without permission for the keys', async () => {
    await admin.acl('SETUSER', 'other', 'on', `>${password}`, '~other:*', '+@all');
    expect((await refusal(withUser(`other:${password}`))).message).toContain('NOPERM');
  });

  it('a database that the server does not have', async () => {
    const { message } = await refusal(`${withUser(`:${password}`)}/9`);
    expect(message).toMatch(/\/9 cannot be used: ERR DB index is out of range\. Name a database in the URL/);
  });

  it('a server outside of a cluster', async () => {
    const { message } = await refusal(`${withUser(`:${password}`)}?cluster=true`);
    expect(message).toMatch(/cluster support disabled.*remove \?cluster=true/);
  });

  it('a server without a command that the tier needs', async () => {
    const { url, server } = await parrot(`-ERR unknown command 'x', with args beginning with: '${password}'\r\n`);
    expect((await refusal(url)).message).toMatch(
      /'\*\*\*'\. The tier needs Redis 6\.2, Valkey 7\.2 or later versions\.$/,
    );
    server.close();
  });

  it('a server in protected mode', async () => {
    const { url, server } = await parrot('-DENIED Redis is running in protected mode\r\n');
    expect((await refusal(url)).message).toMatch(/DENIED.*Set a password on the server/);
    server.close();
  });

  it('a server that is not Redis', async () => {
    const { url, server } = await parrot('HTTP/1.1 400 Bad Request\r\n\r\n');
    expect((await refusal(url)).message).toMatch(/Name the address of a Redis or Valkey server/);
    server.close();
  });

  it('an answer with the password in it is reported without the password', async () => {
    const { url, server } = await parrot(`-WRONGPASS with args beginning with: '${password}'\r\n`);
    expect((await refusal(url)).message).toContain(`beginning with: '***'`);
    server.close();
  });
});

it('the permissions that the message names are enough', redis, async () => {
  const rules = ['on', `>${password}`, '~kvasir:*', '+getex', '+set', '+exists', '+expire', '+unlink'];
  await admin.acl('SETUSER', 'kvasir', ...rules);
  const events: string[] = [];
  const tier = await open(withUser(`kvasir:${password}`), { event: (text) => void events.push(text) });
  expect(await tier.store(key, suiteBytes(key), signal)).toBe('stored');
  expect(await tier.store(key, suiteBytes(key), signal)).toBe('alreadyStored');
  expect(await tier.load(key, block(), signal)).toBeUndefined();
  expect(await tier.tamper(key, (stored) => stored.fill(1))).toBe(true);
  expect(await tier.load(key, block(), signal)).toBe('notABlock');
  expect(await tier.has([key], signal)).toEqual([false]);
  await tier.delete(key);
  expect(tier.counters()).not.toHaveProperty('refreshFailed');
  expect(events).toEqual([]);
  await tier.close();
});

it('user, password and database come from the URL', redis, async () => {
  const tier = await open(`${withUser(`:${password}`)}/2`);
  await tier.store(key, suiteBytes(key), signal);
  const inDatabase2 = new Redis(server.url, { password, db: 2 });
  expect(await inDatabase2.exists(tier.keyOf(key))).toBe(1);
  expect(await admin.exists(tier.keyOf(key))).toBe(0);
  inDatabase2.disconnect();
  await tier.close();
});

describe('a server that is not there is no error at the start', redis, () => {
  it('calls are rejected at once, and the tier works when the server has started', async () => {
    const port = await freePort();
    const events: string[] = [];
    const url = `redis://u:${password}@127.0.0.1:${port}`;
    const tier = await open(url, { event: (text) => void events.push(text) });
    expect(events).toEqual([
      expect.stringMatching(
        /^The tier redis neither loads nor stores blocks: redis:\/\/127.* does not answer \(.*ECONNREF/,
      ),
    ]);
    const failed = { code: 'KVASIR_TIER_FAILED', message: expect.stringContaining('ECONNREFUSED') };
    await expect(tier.load(key, block(), signal)).rejects.toMatchObject(failed);
    await expect(tier.store(key, suiteBytes(key), signal)).rejects.toMatchObject(failed);
    await expect(tier.has([key], signal)).rejects.toMatchObject(failed);
    await expect(tier.delete(key)).rejects.toMatchObject(failed);
    const late = await RedisServer.start(['--user', 'u', 'on', `>${password}`, '~*', '+@all'], port);
    await expect.poll(() => tier.store(key, suiteBytes(key), signal).catch(() => 'failed')).toBe('stored');
    expect(await tier.load(key, block(), signal)).toBeUndefined();
    expect(events.slice(1)).toEqual([expect.stringMatching(/^The tier redis is connected to redis:\/\/127/)]);
    expect(events.join()).not.toContain('hunter');
    await tier.close();
    await late.stop();
  });

  it('a server that accepts connections and never answers', async () => {
    const events: string[] = [];
    const { url, server } = await parrot('');
    const tier = await open(url, { commandTimeoutMs: 50, event: (text) => void events.push(text) });
    expect(events).toEqual([expect.stringContaining('neither loads nor stores')]);
    await expect(tier.load(key, block(), signal)).rejects.toMatchObject({ code: 'KVASIR_TIER_FAILED' });
    await tier.close();
    server.close();
  });

  it('a name without an address', async () => {
    const events: string[] = [];
    const tier = await open('redis://does-not-exist.invalid', { event: (text) => void events.push(text) });
    expect(events).toHaveLength(1);
    await tier.close();
  });
});

it('a password that changes while the tier is open is an event that names the remedy', redis, async () => {
  const rules = ['on', `>${password}`, '~kvasir:*', '+@all'];
  await admin.acl('SETUSER', 'rotated', ...rules);
  const events: string[] = [];
  const tier = await open(withUser(`rotated:${password}`), { event: (text) => void events.push(text) });
  await admin.acl('SETUSER', 'rotated', 'resetpass', '>another');
  await admin.client('KILL', 'USER', 'rotated');
  await expect.poll(() => events.join()).toMatch(/WRONGPASS .*Correct the user and the password/);
  await expect(tier.load(key, block(), signal)).rejects.toMatchObject({ code: 'KVASIR_TIER_FAILED' });
  await admin.acl('SETUSER', 'rotated', `>${password}`);
  await expect.poll(() => tier.load(key, block(), signal).catch(() => 'failed')).toBe('missing');
  expect(events.at(-1)).toMatch(/is connected to/);
  expect(events.length).toBeLessThanOrEqual(3);
  await tier.close();
});

it('a missing package is an error that names the command', redis, async () => {
  const load = () => Promise.reject(Object.assign(new Error('not found'), { code: 'ERR_MODULE_NOT_FOUND' }));
  await expect(loadRedisLibrary(load)).rejects.toMatchObject({
    code: 'KVASIR_REDIS_CLIENT_MISSING',
    message: expect.stringMatching(/it is not installed\. Run: npm install ioredis@6\.0\.0$/),
  });
});
