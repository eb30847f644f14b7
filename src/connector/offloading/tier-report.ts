import { ownValue } from '../../base/by-name.ts';
import type { ConnectorStats, TierLevels, TierTotals } from '../connector-stats.ts';
import type { SaltLevels } from '../tier/salt-bytes.ts';
import { latencyBoundsMs } from '../tier/tier-meter.ts';

/** One direction of one tier since the start, over all ranks. */
export interface TierTraffic {
  readonly blocks: number;
  readonly bytes: number;
  /** Of one call at a time; several calls run at once. Undefined: no block was moved. */
  readonly gigabytesPerSecond: number | undefined;
  /** Milliseconds per block: the upper bounds of the latency buckets that hold half, and 99 %, of the calls. */
  readonly p50Ms: number | undefined;
  readonly p99Ms: number | undefined;
  /** How many calls gave no block, by reason. */
  readonly failures: Readonly<Record<string, number>>;
}

/** What `kvasir tiers` and `GET /tiers` show of one tier. */
export interface TierReport {
  readonly name: string;
  readonly loads: TierTraffic;
  readonly stores: TierTraffic;
  /** Blocks that were not written, because too many blocks waited. */
  readonly dropped: number;
  readonly evicted: number;
  readonly storedBlocks: number | undefined;
  readonly storedBytes: number | undefined;
  readonly maxBytes: number | undefined;
  /** Blocks that the tier does not evict, because they are of pinned prefixes. */
  readonly pinnedBlocks: number;
  readonly openStores: number;
  /** The circuit breakers that are not closed: `lookup`, `load`, `store`. */
  readonly openBreakers: readonly string[];
  /** With `--metrics-by-salt`: blocks and bytes by the tag of their cache salt, the largest ones; `other`: all others. */
  readonly salts?: Readonly<Record<string, SaltLevels>>;
}

/** The tiers of an `OffloadingConnector`, in order, from `engine.stats().transfers.connector`. */
export const tierReports = ({ tiers = {}, levels }: ConnectorStats): TierReport[] =>
  Object.entries(tiers).map(([name, totals]) => reportOf(name, totals, ownValue(levels?.tiers, name) ?? {}));

function reportOf(name: string, totals: TierTotals, levels: TierLevels): TierReport {
  const { blocks, bytes, maxBytes, openStores = 0, prefixBlocks = 0, breakerOpen = {}, salts } = levels;
  const { dropped = 0, evicted = 0 } = totals;
  return {
    name,
    loads: {
      blocks: totals.loadedBlocks ?? 0,
      ...speedOf(totals.loadedBytes, totals.loadMs, totals.loadLatency),
      failures: totals.loadFailed ?? {},
    },
    stores: {
      blocks: totals.storedBlocks ?? 0,
      ...speedOf(totals.storedBytes, totals.storeMs, totals.storeLatency),
      failures: totals.storeFailed ?? {},
    },
    dropped,
    evicted,
    storedBlocks: blocks,
    storedBytes: bytes,
    maxBytes,
    pinnedBlocks: prefixBlocks,
    openStores,
    openBreakers: (['lookup', 'load', 'store'] as const).filter((call) => (breakerOpen[call] ?? 0) > 0),
    ...(salts === undefined ? {} : { salts }),
  };
}

function speedOf(bytes = 0, ms = 0, latency: Readonly<Record<number, number>> = {}) {
  const buckets = [...latencyBoundsMs, Infinity].map((_, i) => latency[i] ?? 0);
  return {
    bytes,
    gigabytesPerSecond: ms > 0 ? bytes / 1e6 / ms : undefined,
    p50Ms: quantile(buckets, 0.5),
    p99Ms: quantile(buckets, 0.99),
  };
}

/** The upper bound of the bucket in which the quantile is; undefined without calls. */
function quantile(buckets: readonly number[], share: number): number | undefined {
  const all = buckets.reduce((sum, count) => sum + count, 0);
  if (all === 0) return undefined;
  let seen = 0;
  for (const [i, count] of buckets.entries()) {
    seen += count;
    if (seen >= share * all) return latencyBoundsMs[i] ?? Infinity;
  }
  return Infinity;
}
