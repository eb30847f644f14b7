import { assert } from '../base/assert.ts';

/**
 * When a worker process that dies repeatedly is given up: after `startsMax` processes that served less than `withinMs`.
 */
export interface RestartPolicy {
  readonly startsMax: number;
  /** Of all these processes together. */
  readonly withinMs: number;
  /** The wait before the second restart in a row. The third waits twice as long, the fourth three times, and so on. */
  readonly backoffMs: number;
}

export const restartDefaults: RestartPolicy = { startsMax: 3, withinMs: 60_000, backoffMs: 250 };

/**
 * Counts the restarts of one worker. Only the time that processes served counts, without the time to load. Loading a large
 * model may take minutes, and a crash at each first step must use up the budget.
 */
export class RestartBudget {
  readonly #policy: RestartPolicy;
  readonly #servedMs: number[] = [];

  constructor(policy: RestartPolicy) {
    this.#policy = policy;
  }

  /** A process has ended. Returns the wait before the next one, or the reason why there is none. */
  ended(servedMs: number): { readonly delayMs: number } | { readonly starts: number; readonly seconds: number } {
    assert(servedMs >= 0, `a process served for ${servedMs} ms`);
    this.#servedMs.push(servedMs);
    const { startsMax, withinMs, backoffMs } = this.#policy;
    let starts = 0;
    let sum = 0;
    for (let i = this.#servedMs.length - 1; i >= 0 && sum + this.#servedMs[i]! < withinMs; i--) {
      sum += this.#servedMs[i]!;
      starts++;
    }
    // Older processes will not count later.
    this.#servedMs.splice(0, this.#servedMs.length - starts);
    if (starts >= startsMax) return { starts, seconds: Math.round(sum / 1000) };
    return { delayMs: backoffMs * Math.max(0, starts - 1) };
  }
}
