import { delayMaxMs } from '../base/background-timers.ts';
import type { Timers } from '../base/timers.ts';

export const systemTimers: Timers = {
  after(delayMs, callback) {
    const handle = setTimeout(callback, Math.min(Math.max(0, delayMs), delayMaxMs));
    return { cancel: () => clearTimeout(handle) };
  },
};
