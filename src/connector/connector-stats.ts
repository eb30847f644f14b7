import { byName, ownValue } from '../base/by-name.ts';
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
  /** Of pinned prefixes, stored or not. */
  readonly prefixBlocks?: number;
  /** 1: the circuit breaker is not closed. */
  readonly breakerOpen?: ByCall;
  /** By the tag of the cache salt, if the operator wants it (`SaltBytes`). */
  readonly salts?: SaltTree;
  readonly [own: string]: number | ByCall | SaltTree | undefined;
};

type SaltTree = { readonly [tag: string]: { readonly blocks: number; readonly bytes: number } };

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
  const sum: ConnectorStats = byName<never>();
  for (const stats of all) if (stats !== undefined) addStats(sum, stats);
  return sum;
}

/** Changes `sum`, which is `{}` or the result of a sum. */
export const addStats = (sum: ConnectorStats, more: ConnectorStats): void => add(sum as MutableTree, more);

/** `now` without what `last` had, and without zeros. */
export const changeOfStats = (now: ConnectorStats, last: ConnectorStats): ConnectorStats => difference(now, last) ?? {};

/** The counts by the names that `engine.stats()` shows, such as `tier.disk.loadFailed.corrupt` and `now.disk.blocks`. */
export function namedCounts({ tiers, own, levels = {}, ...totals }: ConnectorStats): Record<string, number> {
  const named: Record<string, number> = byName();
  addNames(named, '', totals);
  for (const tree of [own, tiers]) addNames(named, 'tier.', tree ?? {});
  const { tiers: tierLevels, own: ownLevels, ...others } = levels;
  for (const tree of [others, ownLevels, tierLevels]) addNames(named, 'now.', tree ?? {});
  return named;
}

type MutableTree = { [name: string]: Count };
type Count = number | CountTree | undefined;

function add(sum: MutableTree, more: CountTree): void {
  for (const name in more) {
    const value = more[name];
    const before = ownValue(sum, name);
    if (typeof value === 'number') sum[name] = ((before as number | undefined) ?? 0) + value;
    else if (value !== undefined) {
      const inner = (before as MutableTree | undefined) ?? byName<Count>();
      sum[name] = inner;
      add(inner, value);
    }
  }
}

/** Undefined: there is none. Called at most steps, so it makes no objects for what has not changed. */
function difference(now: CountTree, last: CountTree): CountTree | undefined {
  let change: MutableTree | undefined;
  const note = (name: string): void => {
    const [value, before] = [ownValue(now, name), ownValue(last, name)];
    const found =
      typeof value === 'object' || typeof before === 'object'
        ? difference((value ?? {}) as CountTree, (before ?? {}) as CountTree)
        : (value ?? 0) - (before ?? 0);
    if (found === undefined || found === 0) return;
    change ??= byName<Count>();
    change[name] = found;
  };
  for (const name in now) note(name);
  for (const name in last) if (!Object.hasOwn(now, name)) note(name);
  return change;
}

function addNames(named: Record<string, number>, prefix: string, tree: CountTree): void {
  for (const name in tree) {
    const value = tree[name];
    if (typeof value === 'number') named[prefix + name] = (named[prefix + name] ?? 0) + value;
    else if (value !== undefined) addNames(named, `${prefix}${name}.`, value);
  }
}
