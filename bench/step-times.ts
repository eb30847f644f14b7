import { rounded } from './statistics.ts';

/**
 * Times of many short pieces of work, and in how many of them the kernel gave the core to somebody else: what these show
 * is the machine's load as much as the work.
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

  /** `switchesBefore`: what `preemptions()` said before the work. */
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
  /** How many of them the kernel interrupted for somebody else. */
  readonly disturbed: number;
  /** Of the others; absent when there are none. */
  readonly undisturbedP99Ms?: number;
}

/** How often the kernel has taken a core away from this process. */
export const preemptions = (): number => process.resourceUsage().involuntaryContextSwitches;

/** Of ascending values: the smallest that is not below the given share of them. */
export function quantile(sorted: Float64Array, share: number): number {
  return rounded(sorted[Math.max(Math.ceil(sorted.length * share) - 1, 0)] ?? 0);
}
