/** Faults of a server and of the network while a tier is open. */
import { setMaxListeners } from 'node:events';
import { Redis } from 'ioredis';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { needs } from '../../../../test/support/needs.ts';
import { hasRedisServer, needsRedisServer, RedisServer } from '../../../../test/support/redis-server.ts';
import { TcpProxy } from '../../../../test/support/tcp-proxy.ts';
import { suiteBytes, suiteIdentity, suiteKey } from '../tier.suite.ts';
import { RedisTier, type RedisTierOptions } from './tier-redis.ts';

const redis = needs(hasRedisServer, needsRedisServer);
const blockBytes = 1024 ** 2;
const identity = { ...suiteIdentity, blockBytes };
const signal = new AbortController().signal;
setMaxListeners(0, signal);
const bytesOf = (name: string): Uint8Array => suiteBytes(suiteKey(name), blockBytes);
const block = (): Uint8Array => new Uint8Array(blockBytes).fill(0xee);
/** Comparing a million numbers with `toEqual` takes seconds. */
const isUntouched = (into: Uint8Array): boolean => Buffer.compare(into, block()) === 0;
const failed = { code: 'KVASIR_TIER_FAILED' };

let server: RedisServer;
let proxy: TcpProxy;
const tiers: RedisTier[] = [];
beforeAll(async () => {
  if (hasRedisServer) server = await RedisServer.start();
});
afterAll(async () => {
  if (hasRedisServer) await server.stop();
});
beforeEach(async () => {
  if (!hasRedisServer) return;
  await server.restart();
  proxy = await TcpProxy.start(server.port);
});
afterEach(async () => {
  if (!hasRedisServer) return;
  server.resume();
  await proxy.close();
  for (const tier of tiers.splice(0)) await tier.close();
});

async function open(options: Partial<RedisTierOptions> = {}): Promise<RedisTier> {
  const tier = await RedisTier.open({ url: server.url, identity, commandTimeoutMs: 60_000, ...options });
  tiers.push(tier);
  return tier;
}

const put = (tier: RedisTier, name: string, until = signal) => tier.store(suiteKey(name), bytesOf(name), until);

/** The outcome of a load: `loaded` with the right bytes, the reason of a miss, or the code of an error. */
async function outcome(tier: RedisTier, name: string): Promise<string> {
  const into = block();
  try {
    const reason = await tier.load(suiteKey(name), into, signal);
    if (reason === undefined) expect(Buffer.compare(into, bytesOf(name))).toBe(0);
    return reason ?? 'loaded';
  } catch (error) {
    return (error as { code: string }).code;
  }
}

/** The result or the error of each call. */
const ends = (calls: readonly Promise<unknown>[]): Promise<unknown[]> =>
  Promise.all(calls.map((call) => call.catch((error: unknown) => error)));

describe('a server that stops answering', redis, () => {
  it('calls end when their signal is aborted, and succeed after the server continues', async () => {
    const tier = await open();
    await put(tier, 'a');
    server.pause();
    const controller = new AbortController();
    setMaxListeners(0, controller.signal);
    const into = block();
    const calls = [
      tier.load(suiteKey('a'), into, controller.signal),
      put(tier, 'b', controller.signal),
      ...Array.from({ length: 20 }, () => tier.load(suiteKey('a'), block(), controller.signal)),
    ];
    const lookUp = tier.has([suiteKey('a')], controller.signal);
    controller.abort(new Error('the deadline passed'));
    for (const end of await ends(calls)) expect(end).toMatchObject({ message: 'the deadline passed' });
    expect(await lookUp).toEqual([undefined]);
    server.resume();
    await expect.poll(() => outcome(tier, 'a')).toBe('loaded');
    expect(into).toSatisfy(isUntouched);
  });

  it('calls without a deadline end by `commandTimeoutMs`', async () => {
    const tier = await open({ commandTimeoutMs: 1_000 });
    await expect.poll(() => put(tier, 'a').catch(() => 'failed')).toMatch(/tored/);
    server.pause();
    const calls = [
      tier.load(suiteKey('a'), block(), signal),
      put(tier, 'b'),
      tier.has([suiteKey('a')], signal),
      tier.delete(suiteKey('a')),
    ];
    for (const end of await ends(calls)) expect(end).toMatchObject(failed);
    server.resume();
    await expect.poll(() => outcome(tier, 'b')).toMatch(/loaded|missing/);
  });

  it('connections without answers are replaced', async () => {
    const events: string[] = [];
    const tier = await open({ commandTimeoutMs: 200, event: (text) => void events.push(text) });
    server.pause();
    const load = tier.load(suiteKey('a'), block(), signal);
    await expect(load).rejects.toMatchObject(failed);
    void tier.has([suiteKey('a')], signal).catch(() => undefined);
    void tier.load(suiteKey('a'), block(), signal).catch(() => undefined);
    await expect
      .poll(() => {
        void tier.load(suiteKey('a'), block(), signal).catch(() => undefined);
        return tier.levels().connections;
      })
      .toBe(0);
    expect(events.join()).toMatch(/neither loads nor stores blocks: .* does not answer/);
    server.resume();
    await expect.poll(() => outcome(tier, 'a')).toBe('missing');
  });

  it('`close` waits for the calls under way', async () => {
    const tier = await open();
    await put(tier, 'a');
    server.pause();
    const load = outcome(tier, 'a');
    const store = put(tier, 'b');
    const closing = tier.close();
    await expect(tier.has([suiteKey('a')], signal)).rejects.toMatchObject({ code: 'KVASIR_TIER_CLOSED' });
    server.resume();
    expect(await load).toBe('loaded');
    expect(await store).toBe('stored');
    await closing;
  });
});

describe('a server that ends', redis, () => {
  it('loads and stores under way fail, and later calls are rejected at once', async () => {
    const tier = await open();
    await put(tier, 'a');
    server.pause();
    const load = tier.load(suiteKey('a'), block(), signal);
    const store = put(tier, 'b');
    const lookUp = tier.has([suiteKey('a')], signal);
    const waiting = Array.from({ length: 20 }, () => tier.load(suiteKey('a'), block(), signal));
    const calls = ends([load, store, lookUp, ...waiting]);
    await server.kill();
    for (const end of await calls) expect(end).toMatchObject(failed);
    await expect(put(tier, 'c')).rejects.toMatchObject(failed);
    await server.run();
  });

  it('after a restart, the blocks are missing and can be stored again', async () => {
    const events: string[] = [];
    const tier = await open({ event: (text) => void events.push(text) });
    await put(tier, 'a');
    expect(await outcome(tier, 'a')).toBe('loaded');
    await server.restart();
    await expect.poll(() => outcome(tier, 'a')).toBe('missing');
    expect(await put(tier, 'a')).toBe('stored');
    expect(await outcome(tier, 'a')).toBe('loaded');
    const other = await open();
    expect(await outcome(other, 'a')).toBe('loaded');
    expect(events.filter((text) => text.includes('does not answer')).length).toBeLessThanOrEqual(1);
  });
});

/** Answers that belong to no command; after them, each command gets the answer of an earlier command. */
const extraAnswers: readonly (readonly [kind: string, bytes: string, outcomes: readonly string[]])[] = [
  ['nothing', '$-1\r\n', ['missing', 'wrongKey', 'wrongKey', 'wrongKey']],
  ['a number', ':1\r\n', ['KVASIR_TIER_FAILED']],
  ['a text', '+OK\r\n', ['truncated', 'wrongKey', 'wrongKey', 'wrongKey']],
];

describe('the network', redis, () => {
  it('a connection that breaks in the middle of a block fails the load', async () => {
    const tier = await open({ url: proxy.url });
    await put(tier, 'a');
    proxy.cutAnswersAfter(300_000);
    expect(await outcome(tier, 'a')).toBe('KVASIR_TIER_FAILED');
    proxy.passAllAnswers();
    await expect.poll(() => outcome(tier, 'a')).toBe('loaded');
  });

  it('an answer after the abort of its load never touches the memory of the load', async () => {
    const tier = await open({ url: proxy.url, connections: 0 });
    await put(tier, 'a');
    proxy.holdAnswers();
    const controller = new AbortController();
    const into = block();
    const load = tier.load(suiteKey('a'), into, controller.signal);
    await expect.poll(() => proxy.heldBytes).toBeGreaterThan(blockBytes);
    controller.abort(new Error('not wanted any more'));
    await expect(load).rejects.toThrow('not wanted any more');
    expect(into).toSatisfy(isUntouched);
    proxy.releaseAnswers();
    // The answer to this look-up comes after the late answer.
    expect(await tier.has([suiteKey('a')], signal)).toEqual([true]);
    expect(into).toSatisfy(isUntouched);
    expect(await outcome(tier, 'a')).toBe('loaded');
  });

  it('a store that was aborted after it was sent stores the whole block', async () => {
    const tier = await open({ url: proxy.url, connections: 0 });
    proxy.holdAnswers();
    const controller = new AbortController();
    const bytes = bytesOf('a');
    const store = tier.store(suiteKey('a'), bytes, controller.signal);
    await expect.poll(() => proxy.heldBytes).toBeGreaterThan(0);
    controller.abort(new Error('not wanted any more'));
    await expect(store).rejects.toThrow('not wanted any more');
    bytes.fill(0);
    proxy.releaseAnswers();
    expect(await outcome(tier, 'a')).toBe('loaded');
  });

  it.each(extraAnswers)(
    'an extra answer (%s) never gives a wrong block, and the connection is replaced',
    async (_, bytes, expected) => {
      const tier = await open({ url: proxy.url, connections: 0 });
      const names = ['a', 'b', 'c', 'd'];
      for (const name of names) await put(tier, name);
      proxy.holdAnswers();
      const loads = Promise.all(names.map((name) => outcome(tier, name)));
      await expect.poll(() => proxy.heldBytes).toBeGreaterThan(4 * blockBytes);
      proxy.releaseAnswers(bytes);
      expect((await loads).slice(0, expected.length)).toEqual(expected);
      // A fresh connection.
      await expect.poll(() => outcome(tier, 'd')).toBe('loaded');
      for (const name of names) expect(await outcome(tier, name)).toMatch(/loaded|missing/);
    },
  );

  it.each([
    ['a number', ':1\r\n'],
    ['texts', '+OK\r\n+OK\r\n'],
    ['an error and a number', '-ERR no command\r\n:1\r\n'],
  ])('answers without a command (%s) end the connection and not the process', async (_, bytes) => {
    const tier = await open({ url: proxy.url, connections: 0 });
    await put(tier, 'a');
    proxy.releaseAnswers(bytes);
    await expect.poll(() => tier.levels().connections).toBe(0);
    await expect.poll(() => outcome(tier, 'a')).toBe('loaded');
  });

  it('look-ups and stores with the answers of other commands fail, and the connection is replaced', async () => {
    const tier = await open({ url: proxy.url, connections: 0 });
    await put(tier, 'a');
    const late = async (call: () => Promise<unknown>, first: string): Promise<void> => {
      proxy.holdAnswers();
      const end = ends([call()]);
      await expect.poll(() => proxy.heldBytes).toBeGreaterThan(0);
      proxy.releaseAnswers(first);
      expect(await end).toMatchObject([failed]);
      await expect.poll(() => outcome(tier, 'a')).toBe('loaded');
    };
    await late(() => tier.has([suiteKey('a')], signal), '$-1\r\n');
    await late(() => tier.has([suiteKey('a')], signal), ':2\r\n');
    await late(() => put(tier, 'b'), ':1\r\n');
    await late(() => tier.delete(suiteKey('b')), '+OK\r\n');
  });
});

it('an old primary that became a replica is left, and used again when it is a primary', redis, async () => {
  const admin = new Redis(server.url);
  const tier = await open();
  await put(tier, 'a');
  await admin.replicaof('127.0.0.1', '1');
  await expect(put(tier, 'b')).rejects.toMatchObject(failed);
  await expect.poll(() => put(tier, 'b').catch((error: Error) => error.message)).toMatch(/no connection.*READONLY/);
  await admin.replicaof('NO', 'ONE');
  await expect.poll(() => put(tier, 'b').catch(() => 'failed')).toBe('stored');
  admin.disconnect();
});

it('tiers that fail and recover many times keep no connections on the server', redis, async () => {
  const admin = new Redis(server.url);
  const tier = await open();
  for (let i = 0; i < 5; i++) {
    await admin.call('CLIENT', 'KILL', 'TYPE', 'normal', 'SKIPME', 'yes');
    await expect.poll(() => put(tier, `${i}`).catch(() => 'failed')).toMatch(/tored/);
  }
  await expect.poll(() => tier.levels().connections).toBe(3);
  const clients = async (): Promise<number> => `${await admin.client('LIST')}`.trim().split('\n').length;
  await expect.poll(clients).toBe(4);
  await tier.close();
  await expect.poll(clients).toBe(1);
  admin.disconnect();
});
