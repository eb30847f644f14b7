import type { LoadFailureReason, SaveFailureReason } from './reasons.ts';

/** Counts by name. Two trees are added or subtracted number by number; an absent number is 0. */
export type CountTree = { readonly [name: string]: number | CountTree | undefined };

/** The calls of a tier that have a circuit breaker. Saves from the pool are `save`, writes to a lower tier `store`. */
type ByCall = { readonly [call in 'lookup' | 'load' | 'save' | 'store']?: number };
type LoadFailures = { readonly [reason in LoadFailureReason]?: number };
type SaveFailures = { readonly [reason in SaveFailureReason]?: number };
/** By latency bucket (`tier-meter.ts`). */
type Latencies = { readonly [bucket: number]: number };

/** What one tier of several did since the start. */
export type TierTotals = {
  readonly loadedBlocks?: number;
  readonly loadedBytes?: number;
  readonly loadMs?: number;
  readonly loadLatency?: Latencies;
  readonly loadFailed?: LoadFailures;
  readonly storedBlocks?: number;
  readonly storedBytes?: number;
  readonly storeMs?: number;
  readonly storeLatency?: Latencies;
  readonly storeFailed?: SaveFailures;
  /** Blocks that were not written, because the tier is slower than the engine. */
  readonly dropped?: number;
  /** Blocks that another server was about to load, and that were not written before their lease was over. */
  readonly leaseExpired?: number;
  readonly evicted?: number;
  /** How often the circuit breaker has opened. */
  readonly breakerOpened?: ByCall;
};

/** What one tier of several has now, and further levels of its own choice. */
export type TierLevels = {
  readonly blocks?: number;
  readonly bytes?: number;
  readonly maxBytes?: number;
  readonly openStores?: number;
  /** 1: the circuit breaker is not closed. */
  readonly breakerOpen?: ByCall;
  readonly [own: string]: number | ByCall | undefined;
};

/**
 * What a connector counts. All fields but `levels` are totals that only grow. Reports have the changes since the last
 * report, so that those of all ranks and steps can be added.
 */
export type ConnectorStats = {
  readonly loadedBlocks?: number;
  readonly loadedBytes?: number;
  readonly loadFailed?: LoadFailures;
  readonly savedBlocks?: number;
  readonly savedBytes?: number;
  readonly saveFailed?: SaveFailures;
  /** Calls that ended after they were given up. */
  readonly lateCompletions?: number;
  readonly breakerOpened?: ByCall;
  /** Of several tiers. */
  readonly tiers?: { readonly [name: string]: TierTotals };
  /** The counters of a single tier. */
  readonly own?: { readonly [name: string]: number };
  /** Current values. */
  readonly levels?: {
    readonly breakerOpen?: ByCall;
    readonly tiers?: { readonly [name: string]: TierLevels };
    readonly own?: { readonly [name: string]: number };
  };
};

export function sumOfStats(all: readonly (ConnectorStats | undefined)[]): ConnectorStats {
  const sum: MutableTree = {};
  for (const stats of all) if (stats !== undefined) add(sum, stats, 1);
  return sum;
}

/** `now` without what `last` had, and without zeros. */
export const changeOfStats = (now: ConnectorStats, last: ConnectorStats): ConnectorStats => difference(now, last);

/** The counts by the names that `engine.stats()` shows, such as `tier.disk.loadFailed.corrupt` and `now.disk.blocks`. */
export function namedCounts({ tiers, own, levels = {}, ...totals }: ConnectorStats): Record<string, number> {
  const named: Record<string, number> = {};
  addNames(named, '', totals);
  for (const tree of [own, tiers]) addNames(named, 'tier.', tree ?? {});
  const { tiers: tierLevels, own: ownLevels, ...others } = levels;
  for (const tree of [others, ownLevels, tierLevels]) addNames(named, 'now.', tree ?? {});
  return named;
}

type MutableTree = { [name: string]: number | CountTree | undefined };

function add(sum: MutableTree, more: CountTree, sign: 1 | -1): void {
  for (const name in more) {
    const [value, before] = [more[name], sum[name]];
    if (value === undefined) continue;
    if (typeof value === 'number') sum[name] = ((before as number | undefined) ?? 0) + sign * value;
    else {
      const inner: MutableTree = { ...(before as CountTree | undefined) };
      add(inner, value, sign);
      sum[name] = inner;
    }
  }
}

function difference(now: CountTree, last: CountTree): CountTree {
  const change: MutableTree = {};
  add(change, now, 1);
  add(change, last, -1);
  return withoutZeros(change);
}

function withoutZeros(tree: CountTree): CountTree {
  const rest: MutableTree = {};
  for (const name in tree) {
    const value = tree[name];
    if (typeof value === 'number' && value !== 0) rest[name] = value;
    if (typeof value !== 'object') continue;
    const inner = withoutZeros(value);
    if (Object.keys(inner).length > 0) rest[name] = inner;
  }
  return rest;
}

function addNames(named: Record<string, number>, prefix: string, tree: CountTree): void {
  for (const name in tree) {
    const value = tree[name];
    if (typeof value === 'number') named[prefix + name] = (named[prefix + name] ?? 0) + value;
    else if (value !== undefined) addNames(named, `${prefix}${name}.`, value);
  }
}
