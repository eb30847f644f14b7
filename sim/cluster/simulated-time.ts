import { setImmediate as nextTurn } from 'node:timers/promises';
import type { Clock } from '../../src/base/clock.ts';
import type { Timer, Timers } from '../../src/base/timers.ts';

interface Event {
  readonly atMs: number;
  /** Events of one time run in the order of their creation. */
  readonly serial: number;
  readonly run: () => void;
  isCancelled: boolean;
}

/**
 * The clock and the timers of a simulated cluster. Time passes only between events: after each event, all promises settle first. So code
 * with promises (`connector/tier`) runs unchanged, and equal seeds give equal runs.
 */
export class SimulatedTime implements Clock, Timers {
  /** A binary heap, the next event first. */
  readonly #events: Event[] = [];
  #serial = 0;
  #nowMs = 0;
  #turns = 1;
  #failure: { readonly error: unknown } | undefined;
  /** Events that have run. */
  eventCount = 0;

  nowMs(): number {
    return this.#nowMs;
  }

  after(delayMs: number, callback: () => void): Timer {
    const event = {
      atMs: this.#nowMs + Math.max(delayMs, delayMinMs),
      serial: this.#serial++,
      run: callback,
      isCancelled: false,
    };
    this.#push(event);
    return {
      cancel: () => {
        event.isCancelled = true;
      },
    };
  }

  sleep(ms: number): Promise<void> {
    return new Promise((resolve) => this.after(ms, resolve));
  }

  /**
   * Work in progress needs so many further turns of Node's event loop, which take no simulated time: saves copy one block in
   * each turn (`tier/staged-saves.ts`).
   */
  needTurns(turns: number): void {
    this.#turns += turns;
  }

  /** Ends `run` with this error. */
  fail(error: unknown): void {
    this.#failure ??= { error };
  }

  /**
   * Runs events until `isDone`. Returns false if there are no more events. Throws what `fail` was given first, or what no code has
   * caught: a failed assertion ends the process of a server.
   */
  async run(isDone: () => boolean): Promise<boolean> {
    const others = process.rawListeners('unhandledRejection') as NodeJS.UnhandledRejectionListener[];
    process.removeAllListeners('unhandledRejection');
    process.on('unhandledRejection', (error) => this.fail(error));
    try {
      return await this.#run(isDone);
    } finally {
      process.removeAllListeners('unhandledRejection');
      for (const listener of others) process.on('unhandledRejection', listener);
    }
  }

  async #run(isDone: () => boolean): Promise<boolean> {
    for (;;) {
      for (; this.#turns > 0; this.#turns--) await nextTurn();
      if (this.#failure !== undefined) throw this.#failure.error;
      if (isDone()) return true;
      const event = this.#pop();
      if (event === undefined) return false;
      if (event.isCancelled) continue;
      this.#nowMs = event.atMs;
      this.#turns = 1;
      this.eventCount++;
      event.run();
    }
  }

  #push(event: Event): void {
    const heap = this.#events;
    let at = heap.length;
    heap.push(event);
    while (at > 0) {
      const parent = (at - 1) >> 1;
      if (!isBefore(event, heap[parent]!)) break;
      heap[at] = heap[parent]!;
      at = parent;
    }
    heap[at] = event;
  }

  #pop(): Event | undefined {
    const heap = this.#events;
    const first = heap[0];
    const last = heap.pop();
    if (first === undefined || last === undefined || heap.length === 0) return first;
    let at = 0;
    for (;;) {
      let child = 2 * at + 1;
      if (child >= heap.length) break;
      if (child + 1 < heap.length && isBefore(heap[child + 1]!, heap[child]!)) child++;
      if (!isBefore(heap[child]!, last)) break;
      heap[at] = heap[child]!;
      at = child;
    }
    heap[at] = last;
    return first;
  }
}

/** Rounding may call a timer too early. Its next delay is then almost 0, and time must go on. */
const delayMinMs = 0.001;

const isBefore = (a: Event, b: Event): boolean => a.atMs < b.atMs || (a.atMs === b.atMs && a.serial < b.serial);
