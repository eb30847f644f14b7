import { appendFileSync } from 'node:fs';
import { readdir, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import type { JsonObject } from '../../base/json.ts';
import { entryPoint } from '../../base/package-files.ts';
import type { BlockKey } from '../../connector/block-key.ts';
import { configReader } from '../../connector/config-reader.ts';
import type { ConnectorContext, KvIdentity, KvTransferConfig } from '../../connector/connector.ts';
import { FaultInjector } from '../../connector/fault/fault-injector.ts';
import { type FaultPlan, readFaultPlan } from '../../connector/fault/fault-rules.ts';
import { OffloadingConnector } from '../../connector/offloading/offloading-connector.ts';
import type { NamedSpec } from '../../connector/offloading/offloading-settings.ts';
import type { OpenTierOptions } from '../../connector/offloading/open-tier.ts';
import { DiskTier } from '../../connector/tier/disk/tier-disk.ts';
import type { StoreAnswer, Tier } from '../../connector/tier/tier.ts';
import type { RanksOfBlock } from './stored-blocks.ts';

/**
 * An OffloadingConnector, which `--kv-tier` opens too, whose transfers can be checked from outside. Further settings are for all tiers below
 * host memory:
 *
 *   save_path     directory for saves, so that recomputed blocks can be compared with the original ones; default: where loads are
 *   faults        an array with one fault plan per rank: see `fault/fault-rules.ts`
 *   record_path   folder for the names of the loaded blocks, in a file `rank<n>` of each rank
 *
 * Engines and worker processes find it by `kv_connector_module_path`, as a user's own connector.
 */
export class ProofConnector extends OffloadingConnector {
  readonly #savePath: string | undefined;
  readonly #recordPath: string | undefined;
  readonly #faults: readonly (FaultPlan | undefined)[];

  constructor(config: KvTransferConfig) {
    const extra = configReader(config.kvConnectorExtraConfig);
    const savePath = extra.text('save_path');
    const recordPath = extra.text('record_path');
    const faults = extra.objects('faults', readFaultPlan) ?? [];
    super({ ...config, kvConnectorExtraConfig: extra.rest() });
    this.#savePath = savePath;
    this.#recordPath = recordPath;
    this.#faults = faults;
  }

  protected override async openTier(
    named: NamedSpec,
    options: OpenTierOptions,
    context: ConnectorContext,
  ): Promise<Tier> {
    const { identity } = options;
    const plan = this.#faults[identity.rank];
    let tier = await super.openTier(named, options, context);
    if (plan !== undefined) tier = new FaultInjector(tier, { identity, timers: context.timers, plan });
    if (this.#savePath !== undefined) tier = savingTo(tier, this.#savePath, identity);
    if (this.#recordPath === undefined) return tier;
    const path = join(this.#recordPath, `rank${identity.rank}`);
    return recordedTier(tier, (key) => appendFileSync(path, `${key}\n`));
  }
}

/** The settings of an engine with this connector. */
export const proofConnector = (settings: JsonObject): JsonObject => ({
  kv_connector: ProofConnector.name,
  kv_connector_module_path: fileURLToPath(entryPoint('src/cli/proof/proof-connector')),
  kv_role: 'kv_both',
  kv_connector_extra_config: settings,
});

/** A tier that reads from `source` and writes to a directory. */
function savingTo(source: Tier, root: string, identity: KvIdentity): Tier {
  const opening = DiskTier.open({ root, identity, maxBytes: Number.MAX_SAFE_INTEGER });
  // Calls that need it throw the error.
  opening.catch(() => undefined);
  return changed(source, {
    store: async (...call: Parameters<Tier['store']>): Promise<StoreAnswer> => (await opening).store(...call),
    delete: async (key: BlockKey) => (await opening).delete(key),
    close: async () => {
      await source.close();
      await (await opening).close();
    },
  });
}

/**
 * Calls `arrived` for each block that is loaded, and changes nothing else. A load that the engine has aborted does not
 * count, even if its bytes arrive later.
 */
export function recordedTier(tier: Tier, arrived: (key: BlockKey) => void): Tier {
  const load: Tier['load'] = async (key, into, signal, context) => {
    const reason = await tier.load(key, into, signal, context);
    if (reason === undefined && !signal.aborted) arrived(key);
    return reason;
  };
  return changed(tier, { load });
}

/** The tier with other methods. */
function changed(tier: Tier, methods: Partial<Tier>): Tier {
  return new Proxy(tier, {
    get(target, name) {
      const value: unknown = Reflect.get(methods, name) ?? Reflect.get(target, name, target);
      return typeof value === 'function' ? (value.bind(target) as unknown) : value;
    },
  });
}

/** The blocks that were loaded on every rank with KV in them, from the records in the folder. */
export async function readArrived(folder: string, ranksOf: RanksOfBlock): Promise<Set<BlockKey>> {
  const loaded = new Map<string, Set<number>>();
  for (const name of await readdir(folder))
    for (const key of (await readFile(join(folder, name), 'utf8')).split('\n').filter(Boolean))
      loaded.set(key, (loaded.get(key) ?? new Set()).add(Number(name.replace('rank', ''))));
  const keys = [...loaded.keys()] as BlockKey[];
  return new Set(keys.filter((key) => ranksOf(key).every((rank) => loaded.get(key)!.has(rank))));
}
