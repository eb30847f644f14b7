/** Where deadlines come from. Passed in, so that tests and the simulator own time. */
export interface Timers {
  /** Calls `callback` once, `delayMs` from now, unless cancelled. */
  after(delayMs: number, callback: () => void): Timer;
}

export interface Timer {
  /** Idempotent; harmless after the call. */
  cancel(): void;
}
