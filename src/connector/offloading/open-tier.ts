import type { Crc32, KvIdentity, MacKeys, PlaceKind } from '../connector.ts';
import { headerBytes } from '../tier/block-header.ts';
import { DiskTier } from '../tier/disk/tier-disk.ts';
import { anyIdentity } from '../tier/identity.ts';
import { RedisTier } from '../tier/redis/tier-redis.ts';
import { S3Tier } from '../tier/s3/tier-s3.ts';
import type { Tier } from '../tier/tier.ts';
import type { NamedSpec } from './offloading-settings.ts';
import { findTierClass, openOwnTier } from './own-tier.ts';
import { maxBytesOf, quotaOf, s3PackBytes } from './rank-share.ts';
import type { DiskSpec, RedisSpec, S3Spec, SecondarySpec } from './tier-spec.ts';

export interface OpenTierOptions {
  readonly identity: KvIdentity;
  readonly crc32?: Crc32 | undefined;
  /** Blocks have a MAC, and others are not loaded. */
  readonly macKeys?: MacKeys | undefined;
  /** Blocks are encrypted with these keys, and others are not loaded. */
  readonly encrypts?: boolean | undefined;
  /** Whether blocks are moved, or only looked up. */
  readonly movesBlocks: boolean;
  /** Whether tiers that know the cache salts of blocks report them. */
  readonly reportsSalts?: boolean | undefined;
  readonly event?: ((message: string) => void) | undefined;
}

/**
 * Opens a secondary tier of one rank.
 * @throws KvasirError if the settings are wrong: a directory, bucket or password. A server that does not answer is no
 * error: the tier is used when the server is there.
 */
export function openTier({ name, spec }: NamedSpec, options: OpenTierOptions): Promise<Tier> {
  switch (spec.kind) {
    case 'disk':
      return openDisk(name, spec, options);
    case 'redis':
      return openRedis(name, spec, options);
    case 's3':
      return openS3(name, spec, options);
    case 'own':
      return openOwnTier(spec, { ...options, name });
  }
}

/** Throws the error of `openTier` that no model can mend. Stores nothing. A class of the user's is found, and not called. */
export async function checkTier({ name, spec }: NamedSpec): Promise<void> {
  const options = { identity: anyIdentity, movesBlocks: false };
  if (spec.kind === 'own') await findTierClass(spec);
  else if (spec.kind === 'disk')
    await DiskTier.check({ root: spec.path, identity: anyIdentity, maxBytes: spec.maxBytes, name });
  else await (await openTier({ name, spec }, options)).close();
}

/** What the tier is for `kv_load_tiers`. */
export function kindOf(spec: SecondarySpec): PlaceKind {
  if (spec.kind === 'own') return { medium: 'STORAGE', locality: spec.locality };
  return { medium: 'STORAGE', locality: spec.kind === 'disk' ? 'LOCAL' : 'REMOTE' };
}

function openS3(name: string, spec: S3Spec, options: OpenTierOptions): Promise<Tier> {
  const { identity, crc32, macKeys, encrypts, event } = options;
  const { kind: _, maxBytes, ...location } = spec;
  return S3Tier.open({
    ...location,
    identity,
    name,
    crc32,
    macKeys,
    encrypts,
    packBytes: Math.max(s3PackBytes, headerBytes + identity.blockBytes),
    ...(event === undefined ? {} : { event }),
    ...(maxBytes === undefined ? {} : { maxBytes: maxBytesOf({ maxBytes }, identity) }),
  });
}

async function openDisk(name: string, spec: DiskSpec, options: OpenTierOptions): Promise<Tier> {
  const { identity, crc32, macKeys, encrypts, movesBlocks, reportsSalts, event } = options;
  const maxBytes = maxBytesOf(spec, identity);
  const quotaBytes = quotaOf(spec, identity);
  const tier = await DiskTier.open({
    root: spec.path,
    identity,
    maxBytes,
    othersMaxBytes: maxBytes,
    fsync: spec.fsync,
    directIo: spec.directIo,
    ttlSeconds: spec.ttlSeconds,
    removesExpired: movesBlocks,
    name,
    ...(event === undefined ? {} : { event }),
    ...(movesBlocks ? { crc32, macKeys, encrypts, quotaBytes, reportsSalts } : {}),
    ...(movesBlocks ? { threads: Math.min(16, spec.readThreads + spec.writeThreads) } : {}),
  });
  if (!movesBlocks) for (const message of tier.events) event?.(message);
  return tier;
}

function openRedis(name: string, spec: RedisSpec, options: OpenTierOptions): Promise<Tier> {
  const { identity, crc32, macKeys, encrypts, movesBlocks, event } = options;
  const { url, ttlSeconds } = spec;
  return RedisTier.open({
    url,
    identity,
    name,
    crc32,
    macKeys,
    encrypts,
    ...(ttlSeconds === undefined ? {} : { ttlSeconds }),
    ...(event === undefined ? {} : { event }),
    ...(movesBlocks ? {} : { connections: 0 }),
  });
}
