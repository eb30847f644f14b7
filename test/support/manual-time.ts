import { assert } from '../../src/base/assert.ts';
import type { Clock } from '../../src/base/clock.ts';
import type { Timer, Timers } from '../../src/base/timers.ts';

/** A clock and timers for tests; time passes only in `advance`. */
export class ManualTime implements Clock, Timers {
  #nowMs = 0;
  #serial = 0;
  readonly #due = new Map<number, { readonly atMs: number; readonly callback: () => void }>();

  nowMs(): number {
    return this.#nowMs;
  }

  /** The number of timers that have neither fired nor been cancelled. */
  get pending(): number {
    return this.#due.size;
  }

  after(delayMs: number, callback: () => void): Timer {
    const id = this.#serial++;
    this.#due.set(id, { atMs: this.#nowMs + Math.max(0, delayMs), callback });
    return { cancel: () => void this.#due.delete(id) };
  }

  /** Lets time pass, and calls due timers in order of time, then of creation. */
  advance(byMs: number): void {
    assert(byMs >= 0, 'time does not go backwards');
    const endMs = this.#nowMs + byMs;
    for (;;) {
      let next: number | undefined;
      for (const [id, { atMs }] of this.#due) {
        if (atMs <= endMs && (next === undefined || atMs < this.#due.get(next)!.atMs)) next = id;
      }
      if (next === undefined) break;
      const { atMs, callback } = this.#due.get(next)!;
      this.#due.delete(next);
      this.#nowMs = atMs;
      callback();
    }
    this.#nowMs = endMs;
  }
}
