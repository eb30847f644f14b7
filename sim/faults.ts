import type { Prng } from '../src/base/prng.ts';

/** How often what goes wrong in stores and workers, as shares of one. */
export interface TierFaults {
  /** The answer is "ask later". */
  readonly askLater: number;
  /** A block is promised that no store has. */
  readonly falseHits: number;
  /** A block is promised under the key of another one. */
  readonly foreign: number;
  /** A store loses a block that it had. */
  readonly vanish: number;
  /** A block's bytes are wrong; the checksum shows it. */
  readonly corrupt: number;
  /** A load fails, and nobody can say which of its blocks did. */
  readonly whole: number;
  /** A load that was to be there within the step is not. */
  readonly slow: number;
  /** I/O does not end by the deadline, and goes on writing. */
  readonly hung: number;
  /** A worker says nothing about a load, ever or until long after. */
  readonly silent: number;
  /** A report is repeated. */
  readonly twice: number;
  /** A report about nothing that there is. */
  readonly unknown: number;
  /** A save does not reach its store. */
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

/** Each world has its own bad luck: some have none, most have little of many faults, some have much of a few. */
export function randomFaults(prng: Prng): TierFaults {
  if (prng.chance(0.15)) return noFaults;
  const isHarsh = prng.chance(0.3);
  const usual = [0, 0, 0.02, 0.05, 0.2];
  const harsh = [0, 0, 0.2, 0.5, 0.9];
  const faults = Object.fromEntries(faultNames.map((name) => [name, prng.pick(isHarsh ? harsh : usual)]));
  // A connector that never knows is a world of its own: only deadlines move on there.
  const askLater = isHarsh && prng.chance(0.2) ? 1 : faults.askLater;
  return { ...(faults as unknown as TierFaults), askLater: askLater ?? 0 };
}

/** The same faults without some of them. Whatever is drawn for them is drawn still, so that the rest stays as it was. */
export function withoutFaults(faults: TierFaults, off: ReadonlySet<string>): TierFaults {
  return Object.fromEntries(
    faultNames.map((name) => [name, off.has(name) ? 0 : faults[name]]),
  ) as unknown as TierFaults;
}
