import { rounded } from './statistics.ts';
import { threadCpuMs } from './subject/thread-cpu.ts';

/** Times of many short pieces of work. */
export class StepTimes {
  readonly #times: Float64Array;
  #count = 0;

  constructor(capacity: number) {
    this.#times = new Float64Array(capacity);
  }

  add(ms: number): void {
    this.#times[this.#count++] = ms;
  }

  summary(): TimesSummary {
    const sorted = this.#times.subarray(0, this.#count).sort();
    return {
      p50Ms: quantile(sorted, 0.5),
      p99Ms: quantile(sorted, 0.99),
      maxMs: quantile(sorted, 1),
      runs: this.#count,
    };
  }
}

export interface TimesSummary {
  readonly p50Ms: number;
  readonly p99Ms: number;
  readonly maxMs: number;
  readonly runs: number;
}

/**
 * The CPU time of this thread in milliseconds, so that other processes do not change what is measured. On systems
 * without such a clock, the time that has passed.
 */
export const workMs = (): number => threadCpuMs() ?? performance.now();

/** The quantile of ascending values: one of the values, without interpolation. */
export function quantile(sorted: Float64Array, share: number): number {
  return rounded(sorted[Math.max(Math.ceil(sorted.length * share) - 1, 0)] ?? 0);
}
