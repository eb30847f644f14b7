/** The source of deadlines. It is passed in, so that tests and the simulator control time. */
export interface Timers {
  /** Calls `callback` once, `delayMs` from now, unless cancelled. */
  after(delayMs: number, callback: () => void): Timer;
}

/** A callback that waits for its time. */
export interface Timer {
  /** Idempotent; no effect after the callback was called. */
  cancel(): void;
}
