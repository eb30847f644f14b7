import { join } from 'node:path';
import { FaultyReports } from '../../../test/support/faulty-reports.ts';
import { replacing } from '../../../test/support/replacing.ts';
import type { JsonObject } from '../../base/json.ts';
import type { BlockKey } from '../block-key.ts';
import { readKvTransferConfig } from '../config.ts';
import { type ConnectorSettings, faultSettings } from '../connector.suite.ts';
import type {
  KvConnector,
  KvTransferConfig,
  SchedulerConnector,
  SchedulerConnectorContext,
  WorkerConnector,
  WorkerConnectorContext,
} from '../connector.ts';
import { createConnector, registerConnector } from '../registry.ts';
import { SharedStorageConnector } from '../shared-storage/shared-storage-connector.ts';
import type { TierWrapping } from '../tier/tier.ts';

/** A directory that gets only every second block to save, so that a prompt has blocks in both halves. */
class HalfConnector extends SharedStorageConnector {
  readonly #half: number;

  constructor(config: KvTransferConfig) {
    const { half, ...extra } = config.kvConnectorExtraConfig;
    super({ ...config, kvConnectorExtraConfig: extra });
    this.#half = half as number;
  }

  override async openScheduler(context: SchedulerConnectorContext & TierWrapping): Promise<SchedulerConnector> {
    const side = await super.openScheduler(context);
    return replacing(side, {
      buildConnectorMeta: (step) =>
        side.buildConnectorMeta({
          ...step,
          newlyValid: step.newlyValid.filter(({ key }) => halfOf(key) === this.#half),
        }),
    });
  }
}

/** Its sides give no tier to the fault injector, as those of a user's connector. */
class OwnSidesHalf extends HalfConnector {
  override openScheduler({
    wrapTier: _,
    ...context
  }: SchedulerConnectorContext & TierWrapping): Promise<SchedulerConnector> {
    return super.openScheduler(context);
  }

  override openWorker({ wrapTier: _, ...context }: WorkerConnectorContext & TierWrapping): Promise<WorkerConnector> {
    return super.openWorker(context);
  }
}

/** Its worker side reports ends late, twice, and of transfers of other connectors. */
class NoisyHalf extends HalfConnector {
  override async openWorker(context: WorkerConnectorContext): Promise<WorkerConnector> {
    const noise = { seed: context.identity.rank, duplicate: 0.3, late: 0.2, unknown: 0.1, foreign: 0.5 };
    return new FaultyReports(await super.openWorker(context), noise);
  }
}

registerConnector('HalfConnector', async () => HalfConnector);
registerConnector('OwnSidesHalf', async () => OwnSidesHalf);
registerConnector('NoisyHalf', async () => NoisyHalf);

/** By the content of the block. */
const halfOf = (key: BlockKey): number => Number.parseInt(key.slice(-1), 16) % 2;

export const disk = (path: string, more: JsonObject = {}, others: JsonObject = {}): JsonObject => ({
  kv_connector: 'SharedStorageConnector',
  ...others,
  kv_connector_extra_config: { shared_storage_path: path, ...timeouts, ...more },
});

/** So that a busy machine does not cause them. */
const timeouts = { lookup_timeout_seconds: 60, save_timeout_seconds: 60, loads_at_once: 2, saves_at_once: 1 };

export const multi = (
  connectors: readonly JsonObject[],
  more: JsonObject = {},
  kvRole = 'kv_both',
): Promise<KvConnector> =>
  createConnector(
    readKvTransferConfig({
      kvConnector: 'MultiConnector',
      kvRole,
      kvConnectorExtraConfig: { connectors, ...more },
    }),
  );

/** A list of two directories with one half of the blocks each. `MultiConnector`: a half in a list of its own. */
export function halves(storage: string, settings: ConnectorSettings, names: readonly string[]): Promise<KvConnector> {
  const { role, mode, rules = [] } = settings;
  const isHung = (call: string): boolean => rules.some(({ on }) => on === call);
  const connectors = names.map((kv_connector, half) => {
    const kv_connector_extra_config = {
      half,
      shared_storage_path: join(storage, `${half}`),
      async_load: mode === 'async',
      ...timeouts,
      ...(isHung('has') ? { lookup_timeout_seconds: 1 } : {}),
      ...(isHung('store') ? { save_timeout_seconds: 1 } : {}),
    };
    if (kv_connector !== 'MultiConnector') return { kv_connector, kv_connector_extra_config };
    const inside = [{ kv_connector: 'HalfConnector', kv_connector_extra_config }];
    return { kv_connector, kv_connector_extra_config: { connectors: inside } };
  });
  return multi(connectors, faultSettings(settings), role);
}
