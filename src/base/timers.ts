/** The source of deadlines. It is passed in, so that tests and the simulator control time. */
export interface Timers {
  /** Calls `callback` once, `delayMs` from now, unless cancelled. */
  after(delayMs: number, callback: () => void): Timer;
}

export interface Timer {
  /** Idempotent; no effect after the callback was called. */
  cancel(): void;
}

/** Above 2^31 - 1 milliseconds, setTimeout calls at once. */
export const delayMaxMs = 2 ** 31 - 1;

/** Timers that do not keep the process running. */
export const backgroundTimers: Timers = {
  after(delayMs, callback) {
    const handle = setTimeout(callback, Math.min(Math.max(0, delayMs), delayMaxMs)).unref();
    return { cancel: () => clearTimeout(handle) };
  },
};
