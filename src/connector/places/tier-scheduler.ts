import type { KvRole, LoadMode, SchedulerConnectorContext } from '../connector.ts';
import type { CircuitBreakerOptions } from '../tier/circuit-breaker.ts';
import type { Tier, TierWrapping } from '../tier/tier.ts';
import { PlaceScheduler } from './place-scheduler.ts';

/** Options of `TierScheduler`. Times are in milliseconds. */
export interface TierSchedulerOptions {
  readonly role: KvRole;
  readonly mode: LoadMode;
  /** Blocks without an answer by then are treated as missing. */
  readonly lookupTimeoutMs: number;
  /** As in `SchedulerConnector`. */
  readonly loadTimeoutMs?: number | undefined;
  /** The name of this engine in the answers to `do_remote_decode`. */
  readonly engineId?: string | undefined;
  /** As in `RemotePrefills`. */
  readonly remotePrefillTimeoutMs?: number | undefined;
  readonly breaker?: CircuitBreakerOptions;
}

/** The scheduler side of a connector that keeps blocks in one tier, without host memory before it. */
export class TierScheduler extends PlaceScheduler {
  /** `bare`: one per rank, with that rank's identity; used for look-ups only. */
  constructor(
    bare: readonly Tier[],
    context: SchedulerConnectorContext & TierWrapping,
    { mode, loadTimeoutMs: wholeLoadTimeoutMs, ...options }: TierSchedulerOptions,
  ) {
    const tiers = bare.map((tier, rank) => context.wrapTier?.(tier, context.identities[rank]!) ?? tier);
    super([{ name: tiers[0]!.name, tiers }], context, { ...options, asyncLoad: mode === 'async', wholeLoadTimeoutMs });
  }
}
