/** The tier on a cluster of two servers. */
import { setMaxListeners } from 'node:events';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { needs } from '../../../../test/support/needs.ts';
import { RedisCluster, withClient } from '../../../../test/support/redis-cluster.ts';
import { hasRedisServer, needsRedisServer } from '../../../../test/support/redis-server.ts';
import { suiteBlockBytes, suiteBytes, suiteIdentity, suiteKey, tierSuite } from '../tier.suite.ts';
import { RedisTier, type RedisTierOptions } from './tier-redis.ts';

const redis = needs(hasRedisServer, needsRedisServer);
const signal = new AbortController().signal;
setMaxListeners(0, signal);
const names = Array.from({ length: 40 }, (_, i) => i);
const keys = names.map((name) => suiteKey(name));

let cluster: RedisCluster;
beforeAll(async () => {
  if (hasRedisServer) cluster = await RedisCluster.start(2);
});
afterAll(async () => {
  if (hasRedisServer) await cluster.stop();
});

const open = (options: Partial<RedisTierOptions> = {}) =>
  RedisTier.open({ url: cluster.url, identity: suiteIdentity, commandTimeoutMs: 60_000, ...options });
const put = (tier: RedisTier, name: number) => tier.store(suiteKey(name), suiteBytes(suiteKey(name)), signal);
const load = (tier: RedisTier, name: number) =>
  tier.load(suiteKey(name), new Uint8Array(suiteBlockBytes), signal).then(
    (reason) => reason ?? 'loaded',
    (error: { code: string }) => error.code,
  );
const empty = async (): Promise<void> => {
  for (const node of cluster.nodes) await withClient(node, async (client) => void (await client.flushall()));
};
const storedOn = async (index: number): Promise<number> => {
  let count = 0;
  await withClient(cluster.nodes[index]!, async (client) => {
    count = await client.dbsize();
  });
  return count;
};

describe('contract', redis, () => {
  tierSuite(
    'RedisTier on a cluster',
    async () => {
      await empty();
      return { tier: await open(), reopen: (identity) => open({ identity }) };
    },
    { isBounded: false },
  );
});

describe('RedisTier on a cluster', redis, () => {
  it('blocks are spread over the servers', async () => {
    await empty();
    const tier = await open();
    for (const name of names) expect(await put(tier, name)).toBe('stored');
    expect(await tier.has(keys, signal)).toEqual(keys.map(() => true));
    for (const index of [0, 1]) expect(await storedOn(index)).toBeGreaterThan(0);
    expect((await storedOn(0)) + (await storedOn(1))).toBe(names.length);
    await tier.close();
  });

  it('one known address is enough', async () => {
    const tier = await open({ url: `${cluster.nodes[1]!.url}?cluster=true` });
    for (const name of names) await put(tier, name);
    for (const name of names) expect(await load(tier, name)).toBe('loaded');
    await tier.close();
  });

  it('the URL of a single server is an error at the start that names the parameter', async () => {
    await expect(open({ url: cluster.nodes[0]!.url })).rejects.toMatchObject({
      code: 'KVASIR_REDIS_REFUSED',
      message: expect.stringMatching(/part of a cluster: add \?cluster=true/),
    });
  });

  it('a server that ends fails only the calls for its blocks, which work again when it is back', async () => {
    await empty();
    const tier = await open();
    for (const name of names) await put(tier, name);
    await cluster.nodes[1]!.kill();
    await expect
      .poll(async () => new Set(await Promise.all(names.map((name) => load(tier, name)))))
      .toEqual(new Set(['loaded', 'KVASIR_TIER_FAILED']));
    const found = await tier.has(keys, signal);
    expect(found.filter((answer) => answer === true).length).toBeGreaterThan(0);
    expect(found.filter((answer) => answer === undefined).length).toBeGreaterThan(0);
    await cluster.nodes[1]!.run();
    await cluster.ready();
    await expect
      .poll(async () => new Set(await Promise.all(names.map((name) => load(tier, name)))))
      .toEqual(new Set(['loaded', 'missing']));
    await tier.close();
  });

  it('a cluster that ends completely is used again when it is back', async () => {
    const events: string[] = [];
    const tier = await open({ event: (text) => void events.push(text) });
    await put(tier, 1);
    for (const node of cluster.nodes) await node.kill();
    await expect.poll(() => load(tier, 1)).toBe('KVASIR_TIER_FAILED');
    await expect.poll(() => events.length).toBe(1);
    for (const node of cluster.nodes) await node.run();
    await cluster.ready();
    await expect.poll(() => load(tier, 1)).toBe('missing');
    await expect.poll(() => put(tier, 1).catch(() => 'failed')).toMatch(/tored/);
    expect(events.at(-1)).toMatch(/is connected to redis:/);
    await tier.close();
  });
});
