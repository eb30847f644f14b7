import type { Prng } from '../../src/base/prng.ts';

/** The probability that one stored block is damaged, or one load finds that its block has vanished. */
export interface TierFaultRates {
  /** One bit differs. */
  readonly corrupt: number;
  /** Another block is stored under the key. */
  readonly swap: number;
  readonly truncate: number;
  readonly vanish: number;
}

/**
 * Faults of processes and networks, each with its mean time between two of a kind in seconds; Infinity: none. Replicas are counted
 * together: with 10 replicas, a replica is hit once in ten times.
 */
export interface ClusterFaults extends TierFaultRates {
  /** A replica dies and starts again, with an empty pool. */
  readonly crashes: number;
  /** A replica takes no more requests, ends those that it has, stops, and starts again. */
  readonly drains: number;
  /** A replica stops (SIGSTOP) and goes on. */
  readonly pauses: number;
  /** Messages between the router and a replica are late. */
  readonly partitions: number;
  /** A client leaves. */
  readonly leaves: number;
  /** The tier refuses calls, answers none, is slow, or has lost all blocks. */
  readonly tierDown: number;
  readonly tierHangs: number;
  readonly tierSlow: number;
  readonly tierWipes: number;
  /** An administrator pins or removes blocks, clears, detaches or attaches tiers of a replica. */
  readonly orders: number;
}

export const noClusterFaults: ClusterFaults = {
  corrupt: 0,
  swap: 0,
  truncate: 0,
  vanish: 0,
  crashes: Infinity,
  drains: Infinity,
  pauses: Infinity,
  partitions: Infinity,
  leaves: Infinity,
  tierDown: Infinity,
  tierHangs: Infinity,
  tierSlow: Infinity,
  tierWipes: Infinity,
  orders: Infinity,
};
export const clusterFaultNames = Object.keys(noClusterFaults) as (keyof ClusterFaults)[];

/** Every kind of fault is absent, seldom or frequent. `scale`: seconds of a typical request. */
export function randomClusterFaults(prng: Prng, scale: number): ClusterFaults {
  const rate = (): number => prng.pick([0, 0.01, 0.1]);
  const seconds = (): number => scale * prng.pick([Infinity, 1, 5, 20]);
  return {
    corrupt: rate(),
    swap: rate(),
    truncate: rate(),
    vanish: rate(),
    crashes: seconds(),
    drains: seconds(),
    pauses: seconds(),
    partitions: seconds(),
    leaves: seconds(),
    tierDown: seconds(),
    tierHangs: seconds(),
    tierSlow: seconds(),
    tierWipes: seconds(),
    orders: seconds(),
  };
}

export function withoutClusterFaults(faults: ClusterFaults, off: ReadonlySet<string>): ClusterFaults {
  const kept: Record<keyof ClusterFaults, number> = { ...faults };
  for (const name of clusterFaultNames) if (off.has(name)) kept[name] = noClusterFaults[name];
  return kept;
}
