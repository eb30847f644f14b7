import { DiskThreads } from './disk-threads.ts';
import type { DiskTierOptions } from './tier-disk.ts';

export const defaultThreads = 4;

export const nameOf = ({ name }: DiskTierOptions): string => name ?? 'disk';

/** The threads of a tier with these options. None has started. */
export function diskThreadsOf(options: DiskTierOptions): DiskThreads {
  const { root, identity, fsync = false, ttlSeconds, crc32, macKeys, encrypts = false } = options;
  const { threads = defaultThreads, backgroundWriters = 0 } = options;
  return new DiskThreads({
    setup: {
      root,
      identity,
      fsync,
      ttlMs: ttlSeconds === undefined ? undefined : ttlSeconds * 1000,
      crc32Library: crc32?.library,
      macKeys,
      encrypts,
    },
    name: nameOf(options),
    threadsMax: threads,
    backgroundWritersMax: backgroundWriters,
  });
}
