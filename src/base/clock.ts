/** Where time comes from. Passed in, so that the simulator can own it. */
export interface Clock {
  /** Monotonic milliseconds with fractions; only differences mean anything. */
  nowMs(): number;
}

/** Declared here and not taken from Node's types: the rooms that compile without Node import this file's `Clock`. */
declare const performance: { now(): number };

export const systemClock: Clock = { nowMs: () => performance.now() };
