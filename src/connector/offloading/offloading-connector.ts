import { availableParallelism } from 'node:os';
import { AssertionError } from '../../base/assert.ts';
import { formatBytes } from '../../base/bytes.ts';
import { IdleCpus } from '../../base/idle-cpus.ts';
import { mapMemory } from '../../base/map-memory.ts';
import { MemoryAhead } from '../../base/memory-ahead.ts';
import type {
  KvConnector,
  KvTransferConfig,
  SchedulerConnector,
  SchedulerConnectorContext,
  WorkerConnector,
  WorkerConnectorContext,
} from '../connector.ts';
import { kvConfigInvalid, tiersInvalid } from '../errors.ts';
import { leasedKeys } from '../places/leased-keys.ts';
import type { Place } from '../places/place-lookups.ts';
import { PlaceScheduler } from '../places/place-scheduler.ts';
import { headerBytes } from '../tier/block-header.ts';
import { HostTier } from '../tier/host/tier-host.ts';
import { StagingBuffers } from '../tier/staging-buffers.ts';
import type { Tier, TierWrapping } from '../tier/tier.ts';
import { TierWorker } from '../tier/tier-worker.ts';
import { stuckMax } from '../transfer/stall-watch.ts';
import { type NamedSpec, type OffloadingSettings, readOffloadingSettings } from './offloading-settings.ts';
import { checkTier, kindOf, openTier, quotaOf, storesAtOnce } from './open-tier.ts';
import { SecondaryTier } from './secondary-tier.ts';
import { secondarySpec, storeOf } from './tier-spec.ts';
import { TierStack } from './tier-stack.ts';
import { longestHoldMs, WritePace } from './write-pace.ts';

/** How many blocks are copied into host memory in one turn of the event loop. */
const savesAtOnce = 2;

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
          const bare = await openTier({ name, spec }, { identity, movesBlocks: false, event });
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

  async openWorker(context: WorkerConnectorContext & TierWrapping): Promise<WorkerConnector> {
    const { identity, crc32, macKeys, encrypts, clock, timers } = context;
    const { host: hostSpec, loadsAtOnce, loadTimeoutMs, storeTimeoutMs, writeQueueBytes, leaseMs } = this.#settings;
    const { metricsBySalt: reportsSalts } = this.#settings;
    const hostMaxBytes = Math.floor(hostSpec.maxBytes / identity.worldSize);
    checkRoom(hostMaxBytes, headerBytes + identity.blockBytes);
    const host = new HostTier({
      identity,
      maxBytes: hostMaxBytes,
      evictionPolicy: hostSpec.evictionPolicy,
      quotaBytes: quotaOf(hostSpec, identity),
      reportsSalts,
      ttlSeconds: hostSpec.ttlSeconds,
      clock,
      crc32,
    });
    // Loads that hang keep their buffers.
    const buffers = new StagingBuffers(identity.blockBytes, (loadsAtOnce + stuckMax) * identity.blockBytes);
    const cpus = new IdleCpus(clock, availableParallelism());
    const pace = new WritePace({ clock, timers, isBusy: () => cpus.isBusy, busyShare: this.#settings.busyWriteShare });
    const openSecondary = async (named: NamedSpec): Promise<SecondaryTier> => {
      const tier = await openTier(named, { identity, crc32, macKeys, encrypts, reportsSalts, movesBlocks: true });
      const queuedMax = Math.floor(writeQueueBytes / identity.worldSize / identity.blockBytes);
      return new SecondaryTier(tier, host, buffers, {
        clock,
        timers,
        loadTimeoutMs,
        storeTimeoutMs,
        storesAtOnce: storesAtOnce(named.spec, identity),
        queuedMax,
        pace,
        leaseMs,
      });
    };
    const secondaries: SecondaryTier[] = [];
    try {
      for (const named of this.#settings.secondaries) secondaries.push(await openSecondary(named));
    } catch (error) {
      if (error instanceof AssertionError) throw error;
      for (const secondary of secondaries) void secondary.close();
      throw error;
    }
    const memoryAhead = new MemoryAhead({
      nextPiece: () => host.nextUnmapped(),
      map: mapMemory,
      isBusy: () => pace.isLoading || cpus.isBusy,
      timers,
    });
    const stack = new TierStack({
      ...{ host, memoryAhead, secondaries, clock, timers, pace, leaseMs },
      blockBytes: identity.blockBytes,
      openSecondary: (name, spec) => openSecondary({ name, spec: secondarySpec(spec) }),
    });
    return new TierWorker(stack, context, {
      loadsAtOnce,
      savesAtOnce,
      saveTimeoutMs: storeTimeoutMs,
      // Saves that wait must not time out.
      ...(storeTimeoutMs < 2 * longestHoldMs ? {} : { saveGate: pace.copies }),
      onForward: (isComputing) => pace.computing(isComputing),
      onExtra: (extra) => stack.lease(leasedKeys(extra)),
      administer: (order) => stack.administer(order),
      // Each tier of the stack has its own breakers: a tier that hangs must not stop loads from host memory.
      breaker: 'none',
      stats: () => stack.stats(),
    });
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

function checkRoom(maxBytes: number, blockBytes: number): void {
  if (maxBytes >= blockBytes) return;
  const reason = `the host tier has ${formatBytes(maxBytes)}, but one block needs ${formatBytes(blockBytes)}. Make it larger`;
  throw tiersInvalid({ reason });
}
