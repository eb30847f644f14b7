import { resolve } from 'node:path';
import { configReader } from '../config-reader.ts';
import {
  type ConnectorContext,
  type KvConnector,
  type KvIdentity,
  type KvRole,
  type KvTransferConfig,
  type LoadMode,
  type SchedulerConnector,
  type SchedulerConnectorContext,
  savesKv,
  type WorkerConnector,
  type WorkerConnectorContext,
} from '../connector.ts';
import { remotePrefillTimeoutMs } from '../places/remote-prefill.ts';
import { TierScheduler } from '../places/tier-scheduler.ts';
import { describeOthers } from '../tier/disk/other-folders.ts';
import { DiskTier, type DiskTierOptions } from '../tier/disk/tier-disk.ts';
import { anyIdentity } from '../tier/identity.ts';
import type { Tier } from '../tier/tier.ts';
import { TierWorker } from '../tier/tier-worker.ts';

/** Each takes about 10 MB. */
const threadsMax = 16;

/**
 * Keeps blocks as files in a directory that processes share, on this machine or on a network file system. It is the
 * `OffloadingConnector` without host memory, with one disk tier, and with settings of its own. They are in
 * `kv_connector_extra_config`:
 *
 *   shared_storage_path      the directory; required
 *   async_load               true: other requests run while a request waits for its load; default true
 *   max_bytes                of one model and rank; least recently used blocks are evicted first; default 16 GiB
 *   others_max_bytes         of blocks of other models and layouts in the directory; default: max_bytes
 *   fsync                    default false: after a power failure a block may be corrupt, which its checksum finds
 *   direct_io                read and write without the system's cache; default false
 *   loads_at_once            concurrent reads; default 4. All reads and writes together use at most 16 threads
 *   saves_at_once            concurrent writes; default 2
 *   background_saves         true: writes have threads of their own, of low priority (Linux); default false
 *   save_buffer_bytes        of blocks that wait to be written; further blocks are not saved; default 64 MiB
 *   save_timeout_seconds     default 30
 *   lookup_timeout_seconds   default 1
 *   load_timeout_seconds     default: 2, and 0.1 more for each 1,024 tokens
 *   remote_prefill_timeout_seconds  as in `RemotePrefills`; default as for loads
 */
export class SharedStorageConnector implements KvConnector {
  readonly authenticatesBlocks = true;
  readonly encryptsBlocks = true;
  readonly #role: KvRole;
  readonly #root: string;
  readonly #mode: LoadMode;
  readonly #maxBytes: number;
  readonly #othersMaxBytes: number;
  readonly #fsync: boolean;
  readonly #directIo: boolean;
  readonly #hasBackgroundSaves: boolean;
  readonly #loadsAtOnce: number;
  readonly #savesAtOnce: number;
  readonly #saveBufferBytes: number;
  readonly #saveTimeoutMs: number;
  readonly #lookupTimeoutMs: number;
  readonly #loadTimeoutMs: number | undefined;
  readonly #remotePrefillTimeoutMs: number | undefined;
  readonly #engineId: string | undefined;

  constructor(config: KvTransferConfig) {
    const extra = configReader(config.kvConnectorExtraConfig);
    const root = extra.required('shared_storage_path', extra.text('shared_storage_path'), 'a directory');
    this.#role = config.kvRole;
    this.#engineId = config.engineId;
    this.#root = root;
    this.#mode = (extra.boolean('async_load') ?? true) ? 'async' : 'sync';
    this.#maxBytes = extra.integer('max_bytes', { min: 1 }) ?? 16 * 1024 ** 3;
    this.#othersMaxBytes = extra.integer('others_max_bytes', { min: 0 }) ?? this.#maxBytes;
    this.#fsync = extra.boolean('fsync') ?? false;
    this.#directIo = extra.boolean('direct_io') ?? false;
    this.#hasBackgroundSaves = extra.boolean('background_saves') ?? false;
    this.#loadsAtOnce = extra.integer('loads_at_once', { min: 1, max: 1024 }) ?? 4;
    this.#savesAtOnce = extra.integer('saves_at_once', { min: 1, max: 1024 }) ?? 2;
    this.#saveBufferBytes = extra.integer('save_buffer_bytes', { min: 0 }) ?? 64 * 1024 ** 2;
    this.#saveTimeoutMs = (extra.number('save_timeout_seconds', { min: 0.001 }) ?? 30) * 1000;
    this.#lookupTimeoutMs = (extra.number('lookup_timeout_seconds', { min: 0.001 }) ?? 1) * 1000;
    const loadTimeoutSeconds = extra.number('load_timeout_seconds', { min: 0.001 });
    this.#loadTimeoutMs = loadTimeoutSeconds === undefined ? undefined : 1000 * loadTimeoutSeconds;
    this.#remotePrefillTimeoutMs = remotePrefillTimeoutMs(extra);
    extra.finish();
  }

  get stores(): readonly string[] {
    return [`disk ${resolve(this.#root)}`];
  }

  async checkSettings(): Promise<void> {
    const maxBytes = this.#maxBytes;
    await DiskTier.check({ root: this.#root, identity: anyIdentity, maxBytes, name: 'shared-storage' });
  }

  async openScheduler(context: SchedulerConnectorContext): Promise<SchedulerConnector> {
    const tiers = await Promise.all(
      context.identities.map(async (identity) => {
        const { event } = context;
        const tier = await this.#openDisk(identity, event === undefined ? {} : { event });
        for (const event of tier.events) context.event?.(event);
        if (identity.rank === 0) void this.#reportOthers(tier, context);
        return this.tierFor(tier, identity, context);
      }),
    );
    return new TierScheduler(tiers, context, {
      role: this.#role,
      mode: this.#mode,
      lookupTimeoutMs: this.#lookupTimeoutMs,
      loadTimeoutMs: this.#loadTimeoutMs,
      remotePrefillTimeoutMs: this.#remotePrefillTimeoutMs,
      ...(this.#engineId === undefined ? {} : { engineId: this.#engineId }),
    });
  }

  async openWorker(context: WorkerConnectorContext): Promise<WorkerConnector> {
    const { identity, crc32, macKeys, encrypts } = context;
    const tier = await this.#openDisk(identity, {
      crc32,
      macKeys,
      encrypts,
      // Loads and saves run concurrently; the worker has a queue with its own limit for each.
      threads: Math.min(this.#loadsAtOnce + (this.#hasBackgroundSaves ? 0 : this.#savesAtOnce), threadsMax),
      backgroundWriters: this.#hasBackgroundSaves ? Math.min(this.#savesAtOnce, threadsMax) : 0,
    });
    return new TierWorker(this.tierFor(tier, identity, context), context, {
      loadsAtOnce: this.#loadsAtOnce,
      savesAtOnce: this.#savesAtOnce,
      saveBufferBytes: this.#saveBufferBytes,
      saveTimeoutMs: this.#saveTimeoutMs,
    });
  }

  /**
   * Runs in the background, because counting takes long in a large store. Other events report a store that cannot be
   * read.
   */
  async #reportOthers(tier: DiskTier, { event }: SchedulerConnectorContext): Promise<void> {
    if (event === undefined) return;
    const found = await tier.countOthers().catch(() => undefined);
    const message = found && describeOthers(this.#root, found, savesKv(this.#role) ? this.#othersMaxBytes : undefined);
    if (message !== undefined) event(message);
  }

  #openDisk(identity: KvIdentity, options: Partial<DiskTierOptions>): Promise<DiskTier> {
    return DiskTier.open({
      root: this.#root,
      identity,
      maxBytes: this.#maxBytes,
      othersMaxBytes: this.#othersMaxBytes,
      fsync: this.#fsync,
      directIo: this.#directIo,
      name: 'shared-storage',
      ...options,
    });
  }

  /** The tier of one rank, for each side. A subclass may wrap it. */
  protected tierFor(tier: DiskTier, _identity: KvIdentity, _context: ConnectorContext): Tier {
    return tier;
  }
}
