import { levelPrefix } from '../tier/tier-counters.ts';
import { latencyBoundsMs } from './tier-meter.ts';

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
  readonly openStores: number;
  /** The circuit breakers that are not closed: `lookup`, `load`, `store`. */
  readonly openBreakers: readonly string[];
}

/** The tiers of an `OffloadingConnector`, in order, from the counters in `engine.stats().transfers`. */
export function tierReports(counters: Readonly<Record<string, number>>): TierReport[] {
  const prefix = `${levelPrefix}`;
  const names = Object.keys(counters).flatMap((name) =>
    name.startsWith(prefix) && name.endsWith('.ranks') ? [name.slice(prefix.length, -'.ranks'.length)] : [],
  );
  return names.map((name) => reportOf(name, counters));
}

function reportOf(name: string, counters: Readonly<Record<string, number>>): TierReport {
  const total = (counter: string): number => counters[`tier.${name}.${counter}`] ?? 0;
  const level = (counter: string): number | undefined => counters[`${levelPrefix}${name}.${counter}`];
  const openBreakers = ['lookup', 'load', 'store'].filter((call) => (level(`breakerOpen.${call}`) ?? 0) > 0);
  return {
    name,
    loads: trafficOf('load', 'loaded', name, counters),
    stores: trafficOf('store', 'stored', name, counters),
    dropped: total('dropped'),
    evicted: total('evicted'),
    storedBlocks: level('blocks'),
    storedBytes: level('bytes'),
    maxBytes: level('maxBytes'),
    openStores: level('openStores') ?? 0,
    openBreakers,
  };
}

function trafficOf(
  call: 'load' | 'store',
  done: 'loaded' | 'stored',
  name: string,
  counters: Readonly<Record<string, number>>,
): TierTraffic {
  const prefix = `tier.${name}.`;
  const bytes = counters[`${prefix}${done}Bytes`] ?? 0;
  const ms = counters[`${prefix}${call}Ms`] ?? 0;
  const buckets = [...latencyBoundsMs, Infinity].map((_, i) => counters[`${prefix}${call}Latency.${i}`] ?? 0);
  const failures: Record<string, number> = {};
  for (const [counter, count] of Object.entries(counters)) {
    const start = `${prefix}${call}Failed.`;
    if (counter.startsWith(start)) failures[counter.slice(start.length)] = count;
  }
  return {
    blocks: counters[`${prefix}${done}Blocks`] ?? 0,
    bytes,
    gigabytesPerSecond: ms > 0 ? bytes / 1e6 / ms : undefined,
    p50Ms: quantile(buckets, 0.5),
    p99Ms: quantile(buckets, 0.99),
    failures,
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
