import { rounded } from './statistics.ts';

/**
 * Times of many short pieces of work, and the number of those that the kernel interrupted for other processes. The
 * times of interrupted pieces also depend on the load of the machine.
 */
export class StepTimes {
  readonly #times: Float64Array;
  readonly #undisturbed: Float64Array;
  #count = 0;
  #undisturbedCount = 0;

  constructor(capacity: number) {
    this.#times = new Float64Array(capacity);
    this.#undisturbed = new Float64Array(capacity);
  }

  /** `switchesBefore`: the value of `preemptions()` before the work. */
  add(ms: number, switchesBefore: number): void {
    this.#times[this.#count++] = ms;
    if (preemptions() === switchesBefore) this.#undisturbed[this.#undisturbedCount++] = ms;
  }

  summary(): TimesSummary {
    const all = this.#times.subarray(0, this.#count).sort();
    const undisturbed = this.#undisturbed.subarray(0, this.#undisturbedCount).sort();
    return {
      p50Ms: quantile(all, 0.5),
      p99Ms: quantile(all, 0.99),
      maxMs: quantile(all, 1),
      disturbed: this.#count - this.#undisturbedCount,
      runs: this.#count,
      ...(undisturbed.length === 0 ? {} : { undisturbedP99Ms: quantile(undisturbed, 0.99) }),
    };
  }
}

export interface TimesSummary {
  readonly p50Ms: number;
  readonly p99Ms: number;
  readonly maxMs: number;
  readonly runs: number;
  /** The number of runs that the kernel interrupted for another process. */
  readonly disturbed: number;
  /** The p99 of the other runs; absent if there are none. */
  readonly undisturbedP99Ms?: number;
}

/** The number of involuntary context switches of this process. */
export const preemptions = (): number => process.resourceUsage().involuntaryContextSwitches;

/** The quantile of ascending values: one of the values, without interpolation. */
export function quantile(sorted: Float64Array, share: number): number {
  return rounded(sorted[Math.max(Math.ceil(sorted.length * share) - 1, 0)] ?? 0);
}
