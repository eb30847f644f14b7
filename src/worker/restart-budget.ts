/** When a worker process that dies again and again is given up. */
export interface RestartPolicy {
  /** So many lives in a row ... */
  readonly startsMax: number;
  /** ... that have served for less than this together. */
  readonly withinMs: number;
  /** How long to wait before the second restart in a row; the third waits twice as long, and so on. */
  readonly backoffMs: number;
}

export const restartDefaults: RestartPolicy = { startsMax: 3, withinMs: 60_000, backoffMs: 250 };

/**
 * The lives of one worker. Counted is the time that they served: loading a large model may take minutes, and a crash at each
 * first step is to be noticed all the same.
 */
export class RestartBudget {
  readonly #policy: RestartPolicy;
  readonly #servedMs: number[] = [];

  constructor(policy: RestartPolicy) {
    this.#policy = policy;
  }

  /** A life has ended. Says how long to wait before the next, or that there is none. */
  ended(servedMs: number): { readonly delayMs: number } | { readonly starts: number; readonly seconds: number } {
    this.#servedMs.push(servedMs);
    const { startsMax, withinMs, backoffMs } = this.#policy;
    let starts = 0;
    let sum = 0;
    for (let i = this.#servedMs.length - 1; i >= 0 && sum + this.#servedMs[i]! < withinMs; i--) {
      sum += this.#servedMs[i]!;
      starts++;
    }
    // What did not count now will not count later.
    this.#servedMs.splice(0, this.#servedMs.length - starts);
    if (starts >= startsMax) return { starts, seconds: Math.round(sum / 1000) };
    return { delayMs: backoffMs * Math.max(0, starts - 1) };
  }
}
