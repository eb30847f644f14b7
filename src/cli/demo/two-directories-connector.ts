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
import { sumOfStats } from '../../connector/connector-stats.ts';
import { ExtraConfig } from '../../connector/extra-config.ts';
import { FaultInjector } from '../../connector/fault/fault-injector.ts';
import { readFaultPlan } from '../../connector/fault/fault-rules.ts';
import { DiskTier } from '../../connector/tier/disk/tier-disk.ts';
import type { Tier } from '../../connector/tier/tier.ts';
import { TierScheduler } from '../../connector/tier/tier-scheduler.ts';
import { TierWorker } from '../../connector/tier/tier-worker.ts';

/**
 * Loads from one directory and stores in another, so that recomputed blocks can be compared with the original blocks.
 * The engine finds it by `kv_connector_module_path`, as a user's own connector. Settings:
 *
 *   load_path        directory for loads
 *   save_path        directory for blocks whose load failed, or that `load_path` does not have
 *   async_load, load_timeout_seconds   as in SharedStorageConnector
 *   lookup_timeout_seconds             as in SharedStorageConnector; default 30
 *   faults           an array with one fault plan per rank: see `fault/fault-rules.ts`
 */
export class TwoDirectoriesConnector implements KvConnector {
  readonly #extra: ExtraConfig;
  readonly #loadPath: string;
  readonly #savePath: string;
  readonly #mode: LoadMode;
  readonly #role: KvRole;
  readonly #loadTimeoutMs: number;
  readonly #lookupTimeoutMs: number;

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
    this.#loadTimeoutMs = 1000 * extra.number('load_timeout_seconds', 30, { min: 0.001 });
    this.#lookupTimeoutMs = 1000 * extra.number('lookup_timeout_seconds', 30, { min: 0.001 });
    extra.objects('faults').forEach(readFaultPlan);
    extra.finish();
  }

  async openScheduler(context: SchedulerConnectorContext): Promise<SchedulerConnector> {
    const tiers = await Promise.all(context.identities.map((identity) => openTier(this.#loadPath, identity)));
    return new TierScheduler(tiers, context, {
      role: this.#role,
      mode: this.#mode,
      lookupTimeoutMs: this.#lookupTimeoutMs,
      loadTimeoutMs: this.#loadTimeoutMs,
    });
  }

  async openWorker(context: WorkerConnectorContext): Promise<WorkerConnector> {
    const { identity, timers } = context;
    const disk = await openTier(this.#loadPath, identity);
    const plan = readFaultPlan(this.#extra.objects('faults')[identity.rank]);
    const source = plan === undefined ? disk : new FaultInjector(disk, { identity, timers, plan });
    const tier = joined(source, await openTier(this.#savePath, identity));
    // Large enough for all blocks: a block that a full buffer rejects could not be compared.
    const saveBufferBytes = 4 * 1024 ** 3;
    return new TierWorker(tier, context, { loadsAtOnce: 4, savesAtOnce: 2, saveBufferBytes, saveTimeoutMs: 60_000 });
  }
}

const openTier = (root: string, identity: KvIdentity): Promise<DiskTier> =>
  DiskTier.open({ root, identity, maxBytes: Number.MAX_SAFE_INTEGER });

/** A tier that reads from `source` and writes to `target`. */
function joined(source: Tier, target: Tier): Tier {
  return {
    name: source.name,
    has: (keys, signal) => source.has(keys, signal),
    load: (key, into, signal, context) => source.load(key, into, signal, context),
    store: (key, bytes, signal, context) => target.store(key, bytes, signal, context),
    delete: (key) => target.delete(key),
    takeEvicted: () => target.takeEvicted(),
    counters: () => sumOfStats([{ own: source.counters() }, { own: target.counters() }]).own ?? {},
    levels: () => sumOfStats([{ own: source.levels?.() ?? {} }, { own: target.levels?.() ?? {} }]).own ?? {},
    close: async () => {
      await source.close();
      await target.close();
    },
  };
}
