/** Where time comes from. Passed in, so that the simulator can own it. */
export interface Clock {
  /** Monotonic milliseconds with fractions; only differences mean anything. */
  nowMs(): number;
}

export const systemClock: Clock = { nowMs: () => performance.now() };
