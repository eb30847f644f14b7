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

/**
 * Finds calls that run much longer than usual. Such a call may still return, but waiting calls need not wait for it. The
 * watch ends no call: a call ends at its deadline.
 *
 * There is one timer, and only while calls wait.
 */
export class StallWatch<Call> {
  readonly #options: StallWatchOptions;
  /** When each call began, oldest first. */
  readonly #beginsMs = new Map<Call, number>();
  readonly #stalled = new Set<Call>();
  /** Times of the calls that finished last. */
  readonly #timesMs: number[] = [];
  #timer: Timer | undefined;

  constructor(options: StallWatchOptions) {
    this.#options = options;
  }

  get stalledCount(): number {
    return this.#stalled.size;
  }

  isStalled(call: Call): boolean {
    return this.#stalled.has(call);
  }

  begin(call: Call): void {
    this.#beginsMs.set(call, this.#options.clock.nowMs());
  }

  /** The call has finished. Calls that were given up are ignored. */
  finish(call: Call): void {
    const beginMs = this.#beginsMs.get(call);
    if (beginMs === undefined) return;
    this.#timesMs.push(this.#options.clock.nowMs() - beginMs);
    if (this.#timesMs.length > timesMax) this.#timesMs.shift();
    this.giveUp(call);
  }

  /** The caller no longer waits for the call. It no longer counts as stalled. */
  giveUp(call: Call): void {
    this.#beginsMs.delete(call);
    this.#stalled.delete(call);
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
