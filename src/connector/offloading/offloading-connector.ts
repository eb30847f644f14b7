import { availableParallelism } from 'node:os';
import { IdleCpus } from '../../base/idle-cpus.ts';
import { mapMemory } from '../../base/map-memory.ts';
import type {
  ConnectorContext,
  KvConnector,
  KvTransferConfig,
  SchedulerConnector,
  SchedulerConnectorContext,
  WorkerConnector,
  WorkerConnectorContext,
} from '../connector.ts';
import { kvConfigInvalid } from '../errors.ts';
import type { Place } from '../places/place-lookups.ts';
import { PlaceScheduler } from '../places/place-scheduler.ts';
import type { Tier, TierWrapping } from '../tier/tier.ts';
import { type NamedSpec, type OffloadingSettings, readOffloadingSettings } from './offloading-settings.ts';
import { checkTier, kindOf, type OpenTierOptions, openTier } from './open-tier.ts';
import { openStackWorker } from './stack-worker.ts';
import { secondarySpec, storeOf } from './tier-spec.ts';

/**
 * Keeps KV that leaves the pool: in host memory first, and in any number of tiers below it. `docs/offloading.md` has the
 * settings (`readOffloadingSettings`).
 */
export class OffloadingConnector implements KvConnector {
  readonly authenticatesBlocks = true;
  readonly encryptsBlocks = true;
  readonly #settings: OffloadingSettings;

  constructor(config: KvTransferConfig) {
    this.#settings = readOffloadingSettings(config);
  }

  get stores(): readonly string[] {
    return this.#settings.secondaries.map(({ spec }) => storeOf(spec)).filter((store) => store !== undefined);
  }

  async checkSettings(): Promise<void> {
    await Promise.all(this.#settings.secondaries.map(checkTier));
  }

  async openScheduler(context: SchedulerConnectorContext & TierWrapping): Promise<SchedulerConnector> {
    this.#checkChunks(context);
    const { identities, event } = context;
    const openPlace = async ({ name, spec }: NamedSpec): Promise<Place> => {
      const tiers: Tier[] = [];
      try {
        for (const identity of identities) {
          const bare = await this.openTier({ name, spec }, { identity, movesBlocks: false, event }, context);
          tiers.push(context.wrapTier?.(bare, identity) ?? bare);
        }
      } catch (error) {
        for (const tier of tiers) void tier.close();
        throw error;
      }
      return { name, tiers, kind: kindOf(spec), maxBytes: 'maxBytes' in spec ? spec.maxBytes : undefined };
    };
    const places: Place[] = [];
    try {
      for (const named of this.#settings.secondaries) places.push(await openPlace(named));
    } catch (error) {
      for (const { tiers } of places) for (const tier of tiers) void tier.close();
      throw error;
    }
    return new PlaceScheduler(places, context, {
      ...this.#settings,
      openPlace: (name, spec) => openPlace({ name, spec: secondarySpec(spec) }),
    });
  }

  openWorker(context: WorkerConnectorContext & TierWrapping): Promise<WorkerConnector> {
    const { identity, crc32, macKeys, encrypts, clock } = context;
    const reportsSalts = this.#settings.metricsBySalt;
    const cpus = new IdleCpus(clock, availableParallelism());
    return openStackWorker(this.#settings, context, {
      openTier: (named) =>
        this.openTier(named, { identity, crc32, macKeys, encrypts, reportsSalts, movesBlocks: true }, context),
      parseSpec: secondarySpec,
      isBusy: () => cpus.isBusy,
      mapMemory,
    });
  }

  /** A tier below host memory, of one rank, for each side. A subclass may wrap it. */
  protected openTier(named: NamedSpec, options: OpenTierOptions, _context: ConnectorContext): Promise<Tier> {
    return openTier(named, options);
  }

  /** Known only now: chunks are whole blocks. */
  #checkChunks({ identities }: SchedulerConnectorContext): void {
    const { chunkTokens } = this.#settings;
    if (chunkTokens === undefined) return;
    for (const { blockSize } of identities[0]!.groups) {
      if (chunkTokens % blockSize === 0) continue;
      throw kvConfigInvalid({
        parameter: 'kv_connector_extra_config.block_size',
        expected: `a multiple of the block size, ${blockSize} tokens`,
        actual: `${chunkTokens}`,
        hint: '',
      });
    }
  }
}
