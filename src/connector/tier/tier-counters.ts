import type { CircuitBreaker } from './circuit-breaker.ts';
import type { Tier } from './tier.ts';

type Counters = Readonly<Record<string, number>>;

/** The prefix of levels, which are current values. All other counters are totals that only grow. */
export const levelPrefix = 'now.';

/** By prefix, the names that were used with it. */
const prefixedNames = new Map<string, Map<string, string>>();

/**
 * Adds `more` to `counts`, with `prefix` before each name. Counters are reported at each step, and making the names again would
 * cost several times as much as copying the counts.
 */
export function addPrefixed(counts: Record<string, number>, prefix: string, more: Counters): void {
  let names = prefixedNames.get(prefix);
  if (names === undefined) {
    names = new Map();
    prefixedNames.set(prefix, names);
  }
  for (const name of Object.keys(more)) {
    let whole = names.get(name);
    if (whole === undefined) {
      whole = prefix + name;
      names.set(name, whole);
    }
    counts[whole] = more[name]!;
  }
}

/** A tier's counters as `tier.<name>`, and its levels as `now.<name>`. */
export function countsOfTier(tier: Tier): Counters {
  const counts: Record<string, number> = {};
  addPrefixed(counts, 'tier.', tier.counters());
  if (tier.levels !== undefined) addPrefixed(counts, levelPrefix, tier.levels());
  return counts;
}

/** How often a breaker has opened, and 1 while it is not closed. `calls`: the calls that it guards, such as `load`. */
export const countsOfBreaker = (calls: string, breaker: CircuitBreaker): Counters => ({
  [`breakerOpened.${calls}`]: breaker.openedCount,
  [`${levelPrefix}breakerOpen.${calls}`]: breaker.state === 'closed' ? 0 : 1,
});

export function sumOfCounts(all: readonly Counters[]): Record<string, number> {
  const sum: Record<string, number> = {};
  for (const counts of all) for (const [name, count] of Object.entries(counts)) sum[name] = (sum[name] ?? 0) + count;
  return sum;
}

/**
 * Reports have differences, so that reports of many ranks and steps can be added. The difference of a level may be
 * negative.
 */
export class CountDifferences {
  readonly #last = new Map<string, number>();

  take(counts: Counters): Counters {
    const differences: Record<string, number> = {};
    let missing = this.#last.size;
    for (const name of Object.keys(counts)) {
      const count = counts[name]!;
      const last = this.#last.get(name);
      if (last !== undefined) missing--;
      if (count === last) continue;
      if (count !== (last ?? 0)) differences[name] = count - (last ?? 0);
      this.#last.set(name, count);
    }
    if (missing > 0) this.#forgetMissing(counts, differences);
    return differences;
  }

  /** A level that is no longer reported is 0. */
  #forgetMissing(counts: Counters, differences: Record<string, number>): void {
    for (const [name, last] of this.#last) {
      if (name in counts) continue;
      this.#last.delete(name);
      if (last !== 0 && name.startsWith(levelPrefix)) differences[name] = -last;
    }
  }
}
