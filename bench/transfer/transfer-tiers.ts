import type { Crc32, KvIdentity } from '../../src/connector/connector.ts';
import { DiskTier } from '../../src/connector/tier/disk/tier-disk.ts';
import { HostTier } from '../../src/connector/tier/host/tier-host.ts';
import { transferFailed } from '../errors.ts';
import { type Comparison, comparison } from '../latency/latency.ts';
import { median } from '../statistics.ts';
import { RawFiles } from './raw-files.ts';
import { blockKeys, TransferHarness } from './transfer-rig.ts';

export interface TierOptions {
  readonly identity: KvIdentity;
  /** The implementation for engines; undefined: Node's. */
  readonly crc32: Crc32 | undefined;
  /** Blocks of one transfer. */
  readonly blocks: number;
  /** A folder that only the bench uses. */
  readonly root: string;
  readonly repetitions: number;
  readonly onProgress: (text: string) => void;
}

/** Blocks through the worker side of a connector and a tier, with checksums, headers and queues. */
export interface TierRow {
  readonly kind: 'tier';
  readonly tier: 'host' | 'disk';
  readonly what: 'save' | 'load';
  readonly blocks: number;
  readonly blockBytes: number;
  /** 10^9 bytes per second: `kvasir`, the same bytes moved by `limit` alone, and the `ratio` of the two. */
  readonly gigabytesPerSecond: Comparison;
  readonly limit: 'memcpy' | 'fs.read' | 'fs.write';
}

/** Medians over repetitions; each moves all bytes once. Files are read from the system's page cache. */
export async function measureTiers(options: TierOptions): Promise<TierRow[]> {
  const { identity, crc32, blocks, root, repetitions } = options;
  const { blockBytes } = identity;
  // In one buffer, like the blocks of the KV pool.
  const memory = new Uint8Array(2 * blocks * blockBytes);
  const blockAt = (i: number): Uint8Array => memory.subarray(i * blockBytes, (i + 1) * blockBytes);
  const pool = Array.from({ length: 2 * blocks }, (_, i) => blockAt(i).fill(i + 1));
  const [sources, targets] = [pool.slice(0, blocks), pool.slice(blocks)];
  const files = new RawFiles(root);
  const maxBytes = 4 * blocks * (blockBytes + 4096);
  const host = new TransferHarness(new HostTier({ identity, maxBytes, crc32 }), identity, pool);
  const disk = new TransferHarness(
    await DiskTier.open({ root, identity, maxBytes, crc32, startThreads: 4 }),
    identity,
    pool,
  );
  const seconds = new Map<string, number[]>();
  try {
    // The first round is a warm-up.
    for (let round = 0; round <= repetitions; round++) {
      options.onProgress(`tiers: ${round === 0 ? 'warming up' : `repetition ${round} of ${repetitions}`}`);
      const keys = blockKeys(blocks, 1 + round * blocks);
      const time = async (name: string, move: () => Promise<void> | void): Promise<void> => {
        const started = performance.now();
        await move();
        if (round > 0) seconds.set(name, [...(seconds.get(name) ?? []), (performance.now() - started) / 1000]);
      };
      for (const target of targets) target.fill(0);
      await time('memcpy', () => copy(sources, targets));
      for (const [name, harness] of [['host', host] as const, ['disk', disk] as const]) {
        await time(`${name} save`, () => harness.save(keys, 0));
        for (const target of targets) target.fill(0);
        await time(`${name} load`, () => harness.load(keys, blocks));
        if (!sources.every((source, i) => Buffer.compare(source, targets[i]!) === 0)) {
          throw transferFailed({ tier: name, reason: 'other bytes came back' });
        }
        await harness.delete(keys);
      }
      await time('fs.write', () => files.write(sources));
      await time('fs.read', () => files.read(targets));
      await files.remove();
    }
  } finally {
    await host.close();
    await disk.close();
  }
  const rateOf = (name: string): number => (blocks * blockBytes) / 1e9 / median(seconds.get(name) ?? []);
  const row = (tier: TierRow['tier'], what: TierRow['what'], limit: TierRow['limit']): TierRow => {
    const gigabytesPerSecond = comparison(['kvasir', limit], [rateOf(`${tier} ${what}`), rateOf(limit)]);
    return { kind: 'tier', tier, what, blocks, blockBytes, gigabytesPerSecond, limit };
  };
  return [
    row('host', 'save', 'memcpy'),
    row('host', 'load', 'memcpy'),
    row('disk', 'save', 'fs.write'),
    row('disk', 'load', 'fs.read'),
  ];
}

function copy(sources: readonly Uint8Array[], targets: readonly Uint8Array[]): void {
  for (const [i, source] of sources.entries()) targets[i]!.set(source);
}
