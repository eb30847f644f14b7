import type { Timers } from './timers.ts';

/** Above 2^31 - 1 milliseconds, setTimeout calls at once. */
export const delayMaxMs = 2 ** 31 - 1;

/** Timers that do not keep the process running. */
export const backgroundTimers: Timers = {
  after(delayMs, callback) {
    const handle = setTimeout(callback, Math.min(Math.max(0, delayMs), delayMaxMs)).unref();
    return { cancel: () => clearTimeout(handle) };
  },
};
