import type { TierLevels, TierTotals } from '../connector-stats.ts';
import type { LoadFailureReason, SaveFailureReason } from '../reasons.ts';
import type { Tier } from './tier.ts';

/** Upper bounds of the latency buckets in milliseconds; the last bucket has no bound. */
export const latencyBoundsMs = [0.5, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000] as const;

/** Counts what one tier does. */
export class TierMeter {
  /** They grow. */
  readonly totals = {
    loadedBlocks: 0,
    loadedBytes: 0,
    loadMs: 0,
    loadLatency: {} as Record<number, number>,
    loadFailed: {} as Partial<Record<LoadFailureReason, number>>,
    storedBlocks: 0,
    storedBytes: 0,
    storeMs: 0,
    storeLatency: {} as Record<number, number>,
    storeFailed: {} as Partial<Record<SaveFailureReason, number>>,
    dropped: 0,
    leaseExpired: 0,
  } satisfies TierTotals;

  loaded(bytes: number, ms: number): void {
    this.totals.loadedBlocks++;
    this.totals.loadedBytes += bytes;
    this.totals.loadMs += ms;
    increment(this.totals.loadLatency, bucketOf(ms));
  }

  stored(bytes: number, ms: number): void {
    this.totals.storedBlocks++;
    this.totals.storedBytes += bytes;
    this.totals.storeMs += ms;
    increment(this.totals.storeLatency, bucketOf(ms));
  }

  loadFailed(reason: LoadFailureReason): void {
    increment(this.totals.loadFailed, reason);
  }

  storeFailed(reason: SaveFailureReason): void {
    increment(this.totals.storeFailed, reason);
  }
}

/** What the tier has now, for reports. */
export function levelsOf(tier: Pick<Tier, 'levels' | 'saltLevels'>): TierLevels {
  const salts = tier.saltLevels?.();
  return salts === undefined ? (tier.levels?.() ?? {}) : { ...tier.levels?.(), salts };
}

/** Adds 1 to the count of this name. */
export function increment<Name extends string | number>(counts: { [name in Name]?: number }, name: Name): void {
  counts[name] = (counts[name] ?? 0) + 1;
}

function bucketOf(ms: number): number {
  const bucket = latencyBoundsMs.findIndex((bound) => ms <= bound);
  return bucket < 0 ? latencyBoundsMs.length : bucket;
}
