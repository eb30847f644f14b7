/** The source of time, an argument everywhere, so that the simulator can replace it. */
export interface Clock {
  /** Monotonic milliseconds with fractions; only differences mean anything. */
  nowMs(): number;
}

/** Declared here, because folders that compile without Node's types import `Clock` from this file. */
declare const performance: { now(): number };

export const systemClock: Clock = { nowMs: () => performance.now() };
