import type { Prng } from '../../src/base/prng.ts';
import type { ClusterOptions } from './cluster.ts';
import type { ClusterFaults } from './cluster-faults.ts';
import type { Replica } from './replica.ts';
import type { SharedTier } from './shared-tier.ts';
import type { SimulatedTime } from './simulated-time.ts';

interface Targets {
  readonly replicas: readonly Replica[];
  readonly tiers: readonly SharedTier[];
  /** A client leaves; `pick` chooses it. False: there is none. */
  leave(pick: (ids: readonly string[]) => string): boolean;
}

const slownessMax = 50;
export const timedFaults = [
  'crashes',
  'drains',
  'pauses',
  'partitions',
  'leaves',
  'tierDown',
  'tierHangs',
  'tierSlow',
  'tierWipes',
  'orders',
] as const satisfies readonly (keyof ClusterFaults)[];
type TimedFault = (typeof timedFaults)[number];
/** How often each fault has happened. */
export type FaultCounts = Readonly<Record<TimedFault, number>>;
export const noFaultCounts: FaultCounts = {
  crashes: 0,
  drains: 0,
  pauses: 0,
  partitions: 0,
  leaves: 0,
  tierDown: 0,
  tierHangs: 0,
  tierSlow: 0,
  tierWipes: 0,
  orders: 0,
};

/** Decides when faults of processes, networks and the tier happen, until the calm. */
export class FaultTimes {
  readonly #time: SimulatedTime;
  readonly #prng: Prng;
  readonly #faultMsMax: number;
  readonly #targets: Targets;
  readonly #counts: Record<TimedFault, number> = { ...noFaultCounts };
  #isCalm: boolean = false;
  /** When the calm has begun, and the last fault is over. */
  calmMs = 0;

  constructor(time: SimulatedTime, prng: Prng, { faults, faultMsMax }: ClusterOptions, targets: Targets) {
    this.#time = time;
    this.#prng = prng;
    this.#faultMsMax = faultMsMax;
    this.#targets = targets;
    for (const fault of timedFaults) if (faults[fault] < Infinity) this.#next(fault, faults[fault] * 1000, prng.fork());
  }

  get counts(): FaultCounts {
    return this.#counts;
  }

  calm(): void {
    this.#isCalm = true;
    this.calmMs = Math.max(this.calmMs, this.#time.nowMs());
    for (const tier of this.#targets.tiers) tier.calm();
  }

  #next(fault: TimedFault, meanMs: number, prng: Prng): void {
    this.#time.after(-Math.log(1 - prng.unit()) * meanMs, () => {
      if (this.#isCalm) return;
      if (this.#cause(fault)) this.#counts[fault]++;
      this.#next(fault, meanMs, prng);
    });
  }

  /** Whether the fault has happened. */
  #cause(fault: TimedFault): boolean {
    const prng = this.#prng;
    const { replicas, tiers } = this.#targets;
    const replica = prng.pick(replicas);
    const untilMs = this.#time.nowMs() + prng.unit() * this.#faultMsMax;
    if (fault === 'leaves') return this.#targets.leave((ids) => prng.pick(ids));
    if (fault === 'orders') return replica.order(prng);
    if (fault.startsWith('tier') && tiers.length === 0) return false;
    const tier = tiers.length > 1 ? prng.pick(tiers) : tiers[0];
    this.calmMs = Math.max(this.calmMs, untilMs);
    switch (fault) {
      case 'crashes':
        replica.crash();
        return true;
      case 'drains':
        replica.drain();
        return true;
      case 'pauses':
        replica.pause(untilMs);
        return true;
      case 'partitions':
        replica.toRouter.partition(untilMs);
        replica.fromRouter.partition(untilMs);
        return true;
      case 'tierDown':
        tier?.fallDown(untilMs);
        return true;
      case 'tierHangs':
        tier?.hang(untilMs);
        return true;
      case 'tierSlow':
        tier?.slowDown(untilMs, prng.between(2, slownessMax));
        return true;
      case 'tierWipes':
        tier?.wipe();
        return true;
    }
  }
}
