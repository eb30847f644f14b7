import type { CircuitBreaker } from './circuit-breaker.ts';
import type { Tier } from './tier.ts';

type Counters = Readonly<Record<string, number>>;

/** The prefix of levels, which are current values. All other counters are totals that only grow. */
export const levelPrefix = 'now.';

/** A tier's counters as `tier.<name>`, and its levels as `now.<name>`. */
export function countsOfTier(tier: Tier): Counters {
  const counts: Record<string, number> = {};
  for (const [name, count] of Object.entries(tier.counters())) counts[`tier.${name}`] = count;
  for (const [name, level] of Object.entries(tier.levels?.() ?? {})) counts[levelPrefix + name] = level;
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
  #last: Counters = {};

  take(counts: Counters): Counters {
    const differences: Record<string, number> = {};
    for (const [name, count] of Object.entries(counts)) {
      const difference = count - (this.#last[name] ?? 0);
      if (difference !== 0) differences[name] = difference;
    }
    // A level that is no longer reported is 0.
    for (const [name, last] of Object.entries(this.#last)) {
      if (last !== 0 && !(name in counts) && name.startsWith(levelPrefix)) differences[name] = -last;
    }
    this.#last = { ...counts };
    return differences;
  }
}
