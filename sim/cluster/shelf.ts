import type {
  ConnectorContext,
  KvIdentity,
  SchedulerConnector,
  WorkerConnector,
} from '../../src/connector/connector.ts';
import { MultiScheduler } from '../../src/connector/multi/multi-scheduler.ts';
import { MultiWorker } from '../../src/connector/multi/multi-worker.ts';
import { TierScheduler } from '../../src/connector/places/tier-scheduler.ts';
import { TierWorker } from '../../src/connector/tier/tier-worker.ts';
import type { ProcessLife } from './process-life.ts';
import { type SharedTier, TierConnection } from './shared-tier.ts';

/** Where one life of a replica keeps KV besides its pool: both sides of the real connector, on the shared tiers. */
export interface Shelf {
  /** Undefined: nowhere. */
  readonly scheduler: SchedulerConnector | undefined;
  openWorker(): Promise<WorkerConnector | undefined>;
  /** After steps. */
  check?(): void;
  /** Blocks are being written, or are pinned for it. */
  readonly isWriting?: boolean;
}

/** Limits of the real connector (`shared-storage-connector.ts`, `offloading-settings.ts`). */
const tierLimits = { loadsAtOnce: 8, savesAtOnce: 4, saveTimeoutMs: 30_000, lookupTimeoutMs: 1000 };
/** Blocks that wait to be stored; further blocks are not saved. */
const saveBufferBlocks = 256;

/** A connector for each tier, and a list of connectors for several, in the order in which they load. */
export function directShelf(
  tiers: readonly SharedTier[],
  life: ProcessLife,
  context: ConnectorContext,
  identity: KvIdentity,
): Shelf {
  const sides = tiers.map((tier) => sidesOf(new TierConnection(tier, life), context, identity));
  const schedulers = sides.map(({ scheduler }) => scheduler);
  const workers = sides.map(({ worker }) => worker);
  return {
    scheduler: sides.length > 1 ? new MultiScheduler(schedulers, life) : schedulers[0],
    openWorker: () => Promise.resolve(sides.length > 1 ? new MultiWorker(workers) : workers[0]),
  };
}

function sidesOf(connection: TierConnection, context: ConnectorContext, identity: KvIdentity) {
  const { lookupTimeoutMs, ...ofWorker } = tierLimits;
  const ofScheduler = { role: 'kv_both', mode: 'async', lookupTimeoutMs } as const;
  const saveBufferBytes = saveBufferBlocks * identity.blockBytes;
  return {
    scheduler: new TierScheduler([connection], { ...context, identities: [identity] }, ofScheduler),
    worker: new TierWorker(connection, { ...context, identity }, { ...ofWorker, saveBufferBytes }),
  };
}
