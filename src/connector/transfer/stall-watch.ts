import type { Clock } from '../../base/clock.ts';
import type { Timer, Timers } from '../../base/timers.ts';

export interface StallWatchOptions {
  readonly clock: Clock;
  readonly timers: Timers;
  /** Called when at least one more call has stalled. */
  readonly onStall: () => void;
}

/** No call stalls earlier than this. */
const limitMinMs = 100;
/** A call stalls when it has run for this many times the median time. */
const medianFactor = 8;
/** The median is that of this many calls that finished last. */
const timesMax = 32;

/** Up to this number, calls that stall or were given up leave their places to others. */
export const stuckMax = 16;

/**
 * Counts running calls that may never return. A call stalls if it runs much longer than usual. It may still return, but
 * waiting calls need not wait for it. A stuck call was given up and has not returned. The watch ends no call: a call ends
 * at its deadline.
 *
 * There is one timer, and only while calls wait.
 */
export class StallWatch<Call> {
  readonly #options: StallWatchOptions;
  /** When each call began that was not given up, oldest first. */
  readonly #beginsMs = new Map<Call, number>();
  readonly #stalled = new Set<Call>();
  readonly #stuck = new Set<Call>();
  /** Times of the calls that finished last. */
  readonly #timesMs: number[] = [];
  #timer: Timer | undefined;

  constructor(options: StallWatchOptions) {
    this.#options = options;
  }

  /** Calls that have not returned. */
  get runningCount(): number {
    return this.#beginsMs.size + this.#stuck.size;
  }

  get stuckCount(): number {
    return this.#stuck.size;
  }

  get stalledCount(): number {
    return this.#stalled.size;
  }

  /** Running calls that leave no place to others. */
  get occupiedCount(): number {
    return this.runningCount - Math.min(this.stuckCount + this.stalledCount, stuckMax);
  }

  isStalled(call: Call): boolean {
    return this.#stalled.has(call);
  }

  begin(call: Call): void {
    this.#beginsMs.set(call, this.#options.clock.nowMs());
  }

  /** The call has returned. */
  finish(call: Call): void {
    const beginMs = this.#beginsMs.get(call);
    this.#stuck.delete(call);
    this.#stalled.delete(call);
    if (beginMs === undefined) return;
    this.#beginsMs.delete(call);
    this.#timesMs.push(this.#options.clock.nowMs() - beginMs);
    if (this.#timesMs.length > timesMax) this.#timesMs.shift();
  }

  /** The caller no longer waits for the call. */
  giveUp(call: Call): void {
    this.#beginsMs.delete(call);
    this.#stalled.delete(call);
    this.#stuck.add(call);
  }

  /** `isNeeded`: other calls wait for the running ones. */
  watch(isNeeded: boolean): void {
    if (isNeeded) this.#setTimer();
    else {
      this.#timer?.cancel();
      this.#timer = undefined;
    }
  }

  /** Sets the timer for the call that stalls next. */
  #setTimer(): void {
    if (this.#timer !== undefined) return;
    for (const [call, beginMs] of this.#beginsMs) {
      if (this.#stalled.has(call)) continue;
      const restMs = beginMs + this.#limitMs() - this.#options.clock.nowMs();
      this.#timer = this.#options.timers.after(restMs, () => this.#look());
      return;
    }
  }

  #look(): void {
    this.#timer = undefined;
    const stalledBefore = this.#stalled.size;
    const latestMs = this.#options.clock.nowMs() - this.#limitMs();
    for (const [call, beginMs] of this.#beginsMs) {
      if (beginMs > latestMs) break;
      this.#stalled.add(call);
    }
    this.#setTimer();
    if (this.#stalled.size > stalledBefore) this.#options.onStall();
  }

  #limitMs(): number {
    const sorted = this.#timesMs.toSorted((a, b) => a - b);
    const medianMs = sorted[Math.floor(sorted.length / 2)] ?? 0;
    return Math.max(limitMinMs, medianFactor * medianMs);
  }
}
