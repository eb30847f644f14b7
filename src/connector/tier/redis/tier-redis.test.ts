import { setMaxListeners } from 'node:events';
import { Redis } from 'ioredis';
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { isLongForm } from '../../../../test/support/long-form.ts';
import { needs } from '../../../../test/support/needs.ts';
import { hasRedisServer, needsRedisServer, RedisServer } from '../../../../test/support/redis-server.ts';
import type { KvIdentity } from '../../connector.ts';
import { BlockCodec, headerBytes } from '../block-header.ts';
import { suiteBlockBytes, suiteBytes, suiteIdentity, suiteKey, tierSuite } from '../tier.suite.ts';
import { tierCipherSuite } from '../tier-cipher.suite.ts';
import { suiteMacKey, tierMacSuite } from '../tier-mac.suite.ts';
import { RedisTier, type RedisTierOptions } from './tier-redis.ts';

const redis = needs(hasRedisServer, needsRedisServer);
let server: RedisServer;
let admin: Redis;
beforeAll(async () => {
  if (!hasRedisServer) return;
  server = await RedisServer.start();
  admin = new Redis(server.url);
});
afterAll(async () => {
  if (!hasRedisServer) return;
  admin.disconnect();
  await server.stop();
});

const open = (options: Partial<RedisTierOptions> = {}) =>
  RedisTier.open({ url: server.url, identity: suiteIdentity, commandTimeoutMs: 60_000, ...options });
const signal = new AbortController().signal;
setMaxListeners(0, signal);
const put = (tier: RedisTier, name: string | number) => tier.store(suiteKey(name), suiteBytes(suiteKey(name)), signal);
const block = (): Uint8Array => new Uint8Array(suiteBlockBytes).fill(0xee);

describe('contracts', redis, () => {
  tierSuite(
    'RedisTier',
    async () => {
      await admin.flushall();
      return { tier: await open(), reopen: (identity) => open({ identity }) };
    },
    { isBounded: false },
  );
  tierSuite(
    'RedisTier with one connection',
    async () => {
      await admin.flushall();
      return { tier: await open({ connections: 0 }), reopen: (identity) => open({ identity }) };
    },
    { isBounded: false },
  );
  if (isLongForm)
    tierSuite(
      'RedisTier with encryption',
      async () => {
        await admin.flushall();
        const ours = { macKeys: [suiteMacKey(1)], encrypts: true };
        return { tier: await open(ours), reopen: (identity) => open({ ...ours, identity }) };
      },
      { isBounded: false, isEncrypted: true },
    );
  tierMacSuite('RedisTier', async () => {
    await admin.flushall();
    return { open: (macKeys) => open({ macKeys }) };
  });
  tierCipherSuite('RedisTier', async () => {
    await admin.flushall();
    return { open: (macKeys, encrypts) => open({ macKeys, encrypts }) };
  });
});

describe('RedisTier', redis, () => {
  beforeEach(async () => {
    if (hasRedisServer) await admin.flushall();
  });

  it('tiers of one model share their blocks, and a tier of another model or rank finds none', async () => {
    const tiers = await Promise.all([open(), open({ identity: { ...suiteIdentity, modelName: 'another name' } })]);
    await put(tiers[0], 'a');
    const into = block();
    expect(await tiers[1].load(suiteKey('a'), into, signal)).toBeUndefined();
    expect(into).toEqual(suiteBytes(suiteKey('a')));
    const others: readonly Partial<KvIdentity>[] = [
      { fingerprint: 'another model' },
      { dtype: 'q8_0' },
      { rank: 1, worldSize: 2 },
      { groups: suiteIdentity.groups.map((group) => ({ ...group, blockSize: 32 })) },
    ];
    for (const other of others) {
      const tier = await open({ identity: { ...suiteIdentity, ...other } });
      expect(await tier.has([suiteKey('a')], signal)).toEqual([false]);
      expect(await tier.load(suiteKey('a'), block(), signal)).toBe('missing');
      await tier.close();
    }
    for (const tier of tiers) await tier.close();
  });

  it('the value of a key is the whole stored block, and the names of keys begin with `kvasir:`', async () => {
    const tier = await open();
    await put(tier, 'a');
    expect(await admin.keys('*')).toEqual([tier.keyOf(suiteKey('a'))]);
    expect(tier.keyOf(suiteKey('a'))).toMatch(/^kvasir:kv-[0-9a-f]{32}:rank0of1:0-[0-9a-f]{64}$/);
    const value = await admin.getBuffer(tier.keyOf(suiteKey('a')));
    expect(value!.length).toBe(headerBytes + suiteBlockBytes);
    expect(new Uint8Array(value!.subarray(headerBytes))).toEqual(suiteBytes(suiteKey('a')));
    await tier.close();
  });

  it('a block of another model under the key of a block is a miss, and is removed', async () => {
    const tier = await open();
    await put(tier, 'a');
    const others: readonly (readonly [reason: string, identity: Partial<KvIdentity>])[] = [
      ['wrongModel', { fingerprint: 'another model' }],
      ['wrongDtype', { dtype: 'q8_0' }],
      ['wrongRank', { rank: 1, worldSize: 2 }],
    ];
    for (const [reason, identity] of others) {
      const other = await open({ identity: { ...suiteIdentity, ...identity } });
      await put(other, 'a');
      await admin.copy(other.keyOf(suiteKey('a')), tier.keyOf(suiteKey('a')), 'REPLACE');
      expect(await tier.load(suiteKey('a'), block(), signal)).toBe(reason);
      expect(await tier.has([suiteKey('a')], signal)).toEqual([false]);
      await other.close();
    }
    await tier.close();
  });

  it('the value of another key is a miss, and is removed', async () => {
    const tier = await open();
    await put(tier, 'a');
    await admin.copy(tier.keyOf(suiteKey('a')), tier.keyOf(suiteKey('b')));
    expect(await tier.load(suiteKey('b'), block(), signal)).toBe('wrongKey');
    expect(await tier.has([suiteKey('a'), suiteKey('b')], signal)).toEqual([true, false]);
    await tier.close();
  });

  it('a value of another type is a miss, and is removed', async () => {
    const tier = await open();
    await admin.rpush(tier.keyOf(suiteKey('a')), 'an element');
    expect(await put(tier, 'a')).toBe('alreadyStored');
    expect(await tier.load(suiteKey('a'), block(), signal)).toBe('notABlock');
    expect(await put(tier, 'a')).toBe('stored');
    await tier.close();
  });

  it('a store with a known checksum writes it, so that a load finds bytes that changed before the store', async () => {
    const tier = await open();
    const [key, bytes] = [suiteKey('a'), suiteBytes(suiteKey('a'))];
    const payloadCrc = new DataView(new BlockCodec(suiteIdentity).encode(key, bytes).buffer).getUint32(92, true);
    bytes[1000]! ^= 1;
    expect(await tier.store(key, bytes, signal, { payloadCrc })).toBe('stored');
    expect(await tier.load(key, block(), signal)).toBe('corrupt');
    expect(await tier.store(key, suiteBytes(key), signal, { payloadCrc })).toBe('stored');
    expect(await tier.load(key, block(), signal)).toBeUndefined();
    await tier.close();
  });

  it('blocks expire, and a load or a repeated store begins their time again', async () => {
    const tier = await open({ ttlSeconds: 1000, connections: 0 });
    const key = suiteKey('a');
    const left = async (): Promise<number> => {
      // The answer of this look-up comes after that of all earlier commands of the connection.
      await tier.has([key], signal);
      return admin.ttl(tier.keyOf(key));
    };
    const full = (seconds: number): boolean => seconds > 500 && seconds <= 1000;
    await put(tier, 'a');
    expect(await left()).toSatisfy(full);
    for (const use of [() => put(tier, 'a'), () => tier.load(key, block(), signal)]) {
      await admin.expire(tier.keyOf(key), 100);
      await use();
      expect(await left()).toSatisfy(full);
    }
    await admin.pexpire(tier.keyOf(key), 1);
    await expect.poll(() => tier.has([key], signal)).toEqual([false]);
    expect(await tier.load(key, block(), signal)).toBe('missing');
    await tier.close();
  });

  it('answers `full` if the server has no memory left and evicts nothing, and still loads', async () => {
    const tier = await open();
    await put(tier, 'a');
    await admin.config('SET', 'maxmemory', '1');
    expect(await put(tier, 'b')).toBe('full');
    expect(tier.counters().full).toBe(1);
    expect(await tier.load(suiteKey('a'), block(), signal)).toBeUndefined();
    const later = await open();
    expect(await later.load(suiteKey('a'), block(), signal)).toBeUndefined();
    await admin.config('SET', 'maxmemory', '0');
    expect(await put(tier, 'b')).toBe('stored');
    await tier.close();
    await later.close();
  });

  it('evicted blocks are misses, and the server never exceeds its memory', async () => {
    const tier = await open();
    const used = Number(/used_memory:(\d+)/.exec(await admin.info('memory'))![1]);
    await admin.config('SET', 'maxmemory-policy', 'allkeys-lru');
    await admin.config('SET', 'maxmemory', `${used + 2_000_000}`);
    const names = Array.from({ length: 1000 }, (_, i) => i);
    for (const name of names) expect(await put(tier, name)).toBe('stored');
    await admin.config('SET', 'maxmemory', '0');
    const found = await tier.has(
      names.map((name) => suiteKey(name)),
      signal,
    );
    expect(found.filter((isStored) => isStored).length).toSatisfy((count: number) => count > 0 && count < 1000);
    for (const [name, isStored] of found.entries())
      expect(await tier.load(suiteKey(name), block(), signal)).toBe(isStored === true ? undefined : 'missing');
    await tier.close();
  });

  it('looks up many keys in one call', async () => {
    const tier = await open();
    const names = Array.from({ length: 5000 }, (_, i) => i);
    await Promise.all(names.slice(0, 100).map((name) => put(tier, name)));
    const keys = names.map((name) => suiteKey(name));
    expect(await tier.has(keys, signal)).toEqual(names.map((name) => name < 100));
    await tier.close();
  });

  it('its levels have the number of connections', async () => {
    const tier = await open({ connections: 3 });
    expect(tier.levels()).toEqual({ connections: 4 });
    await tier.close();
    expect(tier.levels()).toEqual({ connections: 0 });
  });
});
