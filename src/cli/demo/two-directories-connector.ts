import type {
  KvConnector,
  KvIdentity,
  KvRole,
  KvTransferConfig,
  LoadMode,
  SchedulerConnector,
  SchedulerConnectorContext,
  WorkerConnector,
  WorkerConnectorContext,
} from '../../connector/connector.ts';
import { ExtraConfig } from '../../connector/extra-config.ts';
import { FaultInjector } from '../../connector/fault/fault-injector.ts';
import { readFaultPlan } from '../../connector/fault/fault-rules.ts';
import { DiskTier } from '../../connector/tier/disk/tier-disk.ts';
import type { Tier } from '../../connector/tier/tier.ts';
import { sumOfCounts } from '../../connector/tier/tier-counters.ts';
import { TierScheduler } from '../../connector/tier/tier-scheduler.ts';
import { TierWorker } from '../../connector/tier/tier-worker.ts';

/**
 * Loads from one directory and saves into another, so that what had to be computed again lies apart from what was lost
 * and can be compared with it. As a user's own connector would be, it is found by `kv_connector_module_path`. Settings:
 *
 *   load_path        where blocks are looked for
 *   save_path        where blocks go that were not found, or not whole
 *   async_load       as in SharedStorageConnector
 *   faults           an array with one plan per rank, as `fault_injection` has one for all: see `fault/fault-rules.ts`
 */
export class TwoDirectoriesConnector implements KvConnector {
  readonly #extra: ExtraConfig;
  readonly #loadPath: string;
  readonly #savePath: string;
  readonly #mode: LoadMode;
  readonly #role: KvRole;

  constructor(config: KvTransferConfig) {
    const extra = new ExtraConfig(config.kvConnectorExtraConfig);
    const path = (name: string): string => {
      const text = extra.text(name);
      if (text === undefined) throw extra.wrong(name, 'a directory', undefined);
      return text;
    };
    this.#extra = extra;
    this.#loadPath = path('load_path');
    this.#savePath = path('save_path');
    this.#role = config.kvRole;
    this.#mode = extra.boolean('async_load', true) ? 'async' : 'sync';
    extra.objects('faults').forEach(readFaultPlan);
    extra.finish();
  }

  async openScheduler(context: SchedulerConnectorContext): Promise<SchedulerConnector> {
    const tiers = await Promise.all(context.identities.map((identity) => openTier(this.#loadPath, identity)));
    return new TierScheduler(tiers, context, { role: this.#role, mode: this.#mode, lookupTimeoutMs: 5_000 });
  }

  async openWorker(context: WorkerConnectorContext): Promise<WorkerConnector> {
    const { identity, timers } = context;
    const disk = await openTier(this.#loadPath, identity);
    const plan = readFaultPlan(this.#extra.objects('faults')[identity.rank]);
    const source = plan === undefined ? disk : new FaultInjector(disk, { identity, timers, plan });
    const tier = joined(source, await openTier(this.#savePath, identity));
    // Everything is to be kept: what a full buffer dropped could not be compared.
    const saveBufferBytes = 4 * 1024 ** 3;
    return new TierWorker(tier, context, { loadsAtOnce: 4, savesAtOnce: 2, saveBufferBytes, saveTimeoutMs: 60_000 });
  }
}

const openTier = (root: string, identity: KvIdentity): Promise<DiskTier> =>
  DiskTier.open({ root, identity, maxBytes: Number.MAX_SAFE_INTEGER });

/** Reads from the one and writes to the other. */
function joined(source: Tier, target: Tier): Tier {
  return {
    name: source.name,
    has: (keys, signal) => source.has(keys, signal),
    load: (key, into, signal, context) => source.load(key, into, signal, context),
    store: (key, bytes, signal, context) => target.store(key, bytes, signal, context),
    delete: (key) => target.delete(key),
    takeEvicted: () => target.takeEvicted(),
    counters: () => sumOfCounts([source.counters(), target.counters()]),
    levels: () => sumOfCounts([source.levels?.() ?? {}, target.levels?.() ?? {}]),
    close: async () => {
      await source.close();
      await target.close();
    },
  };
}
