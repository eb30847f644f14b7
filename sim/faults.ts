import type { Prng } from '../src/base/prng.ts';

/** The probability of each fault in stores and workers. */
export interface TierFaults {
  /** The answer is "ask later". */
  readonly askLater: number;
  /** A block is promised that no store has. */
  readonly falseHits: number;
  /** A block is promised under the key of another one. */
  readonly foreign: number;
  /** A store loses a block that it had. */
  readonly vanish: number;
  /** A stored block is corrupt; the checksum shows it. */
  readonly corrupt: number;
  /** A load fails, and the report does not say which of its blocks. */
  readonly whole: number;
  /** A sync load does not end within its step. */
  readonly slow: number;
  /** I/O continues to write after the deadline. */
  readonly hung: number;
  /** A worker reports a load never, or long after its end. */
  readonly silent: number;
  /** A report is repeated. */
  readonly twice: number;
  /** A report names an unknown transfer. */
  readonly unknown: number;
  /** A save fails. */
  readonly saveFails: number;
}

export const noFaults: TierFaults = {
  askLater: 0,
  falseHits: 0,
  foreign: 0,
  vanish: 0,
  corrupt: 0,
  whole: 0,
  slow: 0,
  hung: 0,
  silent: 0,
  twice: 0,
  unknown: 0,
  saveFails: 0,
};

export type FaultName = keyof TierFaults;
export const faultNames = Object.keys(noFaults) as FaultName[];

/** Some worlds have no faults, most have many kinds that are rare, some have a few kinds that are frequent. */
export function randomFaults(prng: Prng): TierFaults {
  if (prng.chance(0.15)) return noFaults;
  const isHarsh = prng.chance(0.3);
  const usual = [0, 0, 0.02, 0.05, 0.2];
  const harsh = [0, 0, 0.2, 0.5, 0.9];
  const faults = Object.fromEntries(faultNames.map((name) => [name, prng.pick(isHarsh ? harsh : usual)]));
  // With a connector that always answers "ask later", only deadlines let requests continue.
  const askLater = isHarsh && prng.chance(0.2) ? 1 : faults.askLater;
  return { ...(faults as unknown as TierFaults), askLater: askLater ?? 0 };
}

/** The same faults with some probabilities set to 0. The random draws stay the same, so the rest of the world does, too. */
export function withoutFaults(faults: TierFaults, off: ReadonlySet<string>): TierFaults {
  return Object.fromEntries(
    faultNames.map((name) => [name, off.has(name) ? 0 : faults[name]]),
  ) as unknown as TierFaults;
}
