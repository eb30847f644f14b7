import { randomUUID } from 'node:crypto';
import { openTier } from '../../src/connector/offloading/open-tier.ts';
import type { RedisSpec } from '../../src/connector/offloading/tier-spec.ts';
import { loadRedisLibrary, newRedisClient, type RedisClient } from '../../src/connector/tier/redis/redis-client.ts';
import { parseRedisUrl } from '../../src/connector/tier/redis/redis-url.ts';
import { CheckedTier } from './checked-tier.ts';
import { type SubjectOptions, type TierSubject, tierOptions } from './tier-subject.ts';

/** As many as a tier of one rank opens for blocks, and commands in flight on each. */
const connections = 2;
const callsPerConnection = 4;
const timeoutMs = 30_000;
const ttlSeconds = 600;

/** The limit: the same bytes through clients of the same kind, which do nothing else. */
export async function redisSubject(spec: RedisSpec, subject: SubjectOptions): Promise<TierSubject> {
  const { name, options } = tierOptions('redis', subject);
  const tier = new CheckedTier(await openTier({ name: 'redis', spec }, options));
  const clients = await openClients(spec);
  const prefix = `kvasir:bench:${randomUUID()}:`;
  const names = new Set<string>();
  const clientOf = (index: number): RedisClient => clients[index % clients.length]!;
  return {
    name,
    limit: { store: 'SET', load: 'GETEX' },
    callsAtOnce: { store: connections * callsPerConnection, load: connections * callsPerConnection },
    store: (key, bytes) => tier.store(key, bytes),
    load: (key, into) => tier.load(key, into),
    delete: (keys) => tier.delete(keys),
    storeLimit: async (index, bytes) => {
      names.add(prefix + index);
      await clientOf(index).set(
        prefix + index,
        Buffer.from(bytes.buffer, bytes.byteOffset, bytes.length),
        'EX',
        ttlSeconds,
      );
    },
    loadLimit: async (index) => void (await clientOf(index).getexBuffer(prefix + index, 'EX', ttlSeconds)),
    clearLimit: async () => {
      for (const name of names) await clientOf(0).unlink(name);
      names.clear();
    },
    close: async () => {
      for (const client of clients) client.disconnect();
      await tier.close();
    },
  };
}

async function openClients({ url }: RedisSpec): Promise<readonly RedisClient[]> {
  const library = await loadRedisLibrary();
  const clients = Array.from({ length: connections }, () => newRedisClient(library, parseRedisUrl(url), timeoutMs));
  for (const client of clients) {
    // A failed connection also rejects `connect`.
    client.on('error', () => undefined);
    await client.connect();
  }
  return clients;
}
