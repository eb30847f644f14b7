import { setImmediate as nextTurn } from 'node:timers/promises';
import { assert, assertDefined } from '../../base/assert.ts';
import { settlesWithin } from '../../base/deadlines.ts';
import type { JsonObject } from '../../base/json.ts';
import type { BlockMemory } from '../../core/block-memory.ts';
import type { BlockId, RequestId } from '../../core/ids.ts';
import type { BlockKey } from '../block-key.ts';
import type {
  ArrivedBlock,
  BlockLoadFailure,
  BlockSaveFailure,
  ConnectorMetadata,
  LoadedElsewhere,
  SaveJob,
  TransferId,
  TransferReport,
  WorkerConnector,
  WorkerConnectorContext,
} from '../connector.ts';
import { addStats, type ConnectorStats, changeOfStats } from '../connector-stats.ts';
import type { LoadFailureReason, SaveFailureReason } from '../reasons.ts';
import { type SaltTag, saltTagOf } from '../salt-tag.ts';
import type { TierOrder, TierOrderAnswer } from '../tier-orders.ts';
import { type TransferGate, TransferQueue } from '../transfer/transfer-queue.ts';
import { hasKvOn } from './blocks-of-rank.ts';
import type { CircuitBreakerOptions } from './circuit-breaker.ts';
import { DirectSaves } from './direct-saves.ts';
import { GuardedTier } from './guarded-tier.ts';
import type { SavedBlock, SavePath } from './save-path.ts';
import { StagedSaves } from './staged-saves.ts';
import type { Tier, TierWrapping } from './tier.ts';
import { increment } from './tier-meter.ts';

/** Options of `TierWorker`. Times are in milliseconds. */
export interface TierWorkerOptions {
  readonly loadsAtOnce: number;
  readonly savesAtOnce: number;
  /**
   * Bytes of copies of blocks that may wait to be written; further blocks are not saved. Absent: blocks are not copied
   * first, and the tier reads them from the pool. Only for a tier whose `store` is one copy, such as host memory. A block
   * is pinned until it is stored, and a step that overwrites the block waits for that.
   */
  readonly saveBufferBytes?: number;
  readonly saveTimeoutMs: number;
  /** `none`: the tier consists of several, each with its own breakers. */
  readonly breaker?: CircuitBreakerOptions | 'none';
  /** Of a tier that consists of several: what each of them did, beside the tier's own `counters` and `levels`. */
  readonly stats?: () => Pick<ConnectorStats, 'tiers' | 'levels'>;
  /** Saves wait while it is closed, unless a step overwrites their blocks. */
  readonly saveGate?: TransferGate;
  /** Called with true at each layer of a forward pass, before it computes, and with false when it has ended. */
  readonly onForward?: (isComputing: boolean) => void;
  /** Called with the message of the scheduler side, before the saves of its step begin. */
  readonly onExtra?: (extra: JsonObject) => void;
  /** Of a tier that consists of several. Absent: there is nothing to administer. */
  readonly administer?: (order: TierOrder) => Promise<TierOrderAnswer>;
}

const abortTurns = 10;

/**
 * Counting takes about 0.15 ms. While no transfer ends, counts change only in the background, and are reported after this time.
 * An engine that only waits for transfers takes a step each 100 ms.
 */
const countAgainMs = 90;

interface LoadItem {
  readonly block: BlockId;
  readonly key: BlockKey;
  readonly index: number;
  readonly requestId: RequestId;
  readonly place: string;
  readonly saltTag?: SaltTag | undefined;
  readonly servedBy: (place: string) => void;
}

/**
 * The worker side of every connector that keeps blocks in a tier. Loads read from the tier directly into the pool. Saves
 * read the pool while the forward pass computes (`save-path.ts`), and those that a step flushes before it.
 */
export class TierWorker implements WorkerConnector {
  readonly #tier: Tier;
  readonly #context: WorkerConnectorContext;
  readonly #onForward: (isComputing: boolean) => void;
  readonly #onExtra: (extra: JsonObject) => void;
  readonly administer: WorkerConnector['administer'];
  readonly #stats: TierWorkerOptions['stats'];
  readonly #hasKv: (key: BlockKey) => boolean;
  readonly #loads: TransferQueue<LoadItem, LoadFailureReason>;
  readonly #saves: SavePath;
  /** Undefined: the tier guards its calls itself. */
  readonly #guarded: GuardedTier | undefined;
  #memory: BlockMemory | undefined;
  #metadata: ConnectorMetadata | undefined;
  #decidedLoads: TransferId[] = [];
  #decidedSaves: TransferId[] = [];
  #drained: TransferId[] = [];
  #loadFailures: BlockLoadFailure[] = [];
  #saveFailures: BlockSaveFailure[] = [];
  #loadedElsewhere: LoadedElsewhere[] = [];
  #arrived: ArrivedBlock[] = [];
  /** Since the start. */
  readonly #totals = {
    loadedBlocks: 0,
    loadedBytes: 0,
    loadFailed: {} as Partial<Record<LoadFailureReason, number>>,
    savedBlocks: 0,
    savedBytes: 0,
    saveFailed: {} as Partial<Record<SaveFailureReason, number>>,
  };
  readonly #reported: ConnectorStats = {};
  #countedAtMs = Number.NEGATIVE_INFINITY;
  #shutdown: Promise<{ readonly drained: boolean }> | undefined;

  constructor(tier: Tier, context: WorkerConnectorContext & TierWrapping, options: TierWorkerOptions) {
    this.#tier = context.wrapTier?.(tier, context.identity) ?? tier;
    this.#context = context;
    this.#onForward = options.onForward ?? (() => undefined);
    this.#onExtra = options.onExtra ?? (() => undefined);
    this.#hasKv = hasKvOn(context.identity);
    const { administer } = options;
    // A rank without KV in some blocks is not asked for them.
    if (administer !== undefined)
      this.administer = (order) =>
        administer('keys' in order ? { ...order, keys: order.keys.filter(this.#hasKv) } : order);
    const { timers, wake: onChange, clock, identity } = context;
    const { breaker } = options;
    this.#guarded = breaker === 'none' ? undefined : new GuardedTier(this.#tier, { clock, timers, breaker });
    this.#stats = options.stats;
    this.#loads = new TransferQueue({
      concurrency: options.loadsAtOnce,
      clock,
      timers,
      run: (item, signal) => this.#load(item, signal),
      onChange,
    });
    const { savesAtOnce, saveTimeoutMs, saveBufferBytes: bufferBytes } = options;
    const saving = {
      savesAtOnce,
      timeoutMs: saveTimeoutMs,
      clock,
      timers,
      gate: options.saveGate,
      onChange,
      bytesOf: (block: BlockId) => this.#pool().bytesOf(block),
      store: (block: SavedBlock, bytes: Uint8Array, signal: AbortSignal) => this.#store(block, bytes, signal),
    };
    this.#saves =
      bufferBytes === undefined
        ? new DirectSaves(saving)
        : new StagedSaves({ ...saving, blockBytes: identity.blockBytes, bufferBytes });
  }

  registerKvCaches(memory: BlockMemory): void {
    assert(this.#memory === undefined, 'the pool is registered already');
    assert(
      memory.blockBytes === this.#context.identity.blockBytes,
      'the blocks of the pool have another size than in the identity',
    );
    this.#memory = memory;
  }

  async handlePreemptions({ cancelled, saves, jobsToFlush }: ConnectorMetadata): Promise<void> {
    for (const id of cancelled) this.#loads.cancel(id);
    if (jobsToFlush.length === 0) return;
    for (const save of saves) if (jobsToFlush.includes(save.transfer)) this.#save(save);
    await this.#saves.flush(jobsToFlush);
  }

  bindConnectorMetadata(metadata: ConnectorMetadata): void {
    assert(this.#metadata === undefined, 'the metadata of the last step was not cleared');
    this.#metadata = metadata;
  }

  startLoadKv(): void {
    const { loads, saves, jobsToFlush, extra } = this.#bound();
    if (extra !== undefined) this.#onExtra(extra);
    for (const { transfer, requestId, mode, timeoutMs, cacheSalt, blocks } of loads) {
      const saltTag = saltTagOf(cacheSalt);
      // Nothing writes the other blocks: they have no KV on this rank.
      for (const { key, block } of blocks) if (!this.#hasKv(key)) this.#arrived.push({ transfer, block });
      const ownBlocks = blocks.filter(({ key }) => this.#hasKv(key));
      const items = ownBlocks.map(({ block, key, index, place }) => ({
        block,
        key,
        index,
        requestId,
        place,
        saltTag,
        servedBy: (source: string) => {
          if (source !== place) this.#loadedElsewhere.push({ transfer, block, place: source });
        },
      }));
      this.#loads.submit(transfer, items, { timeoutMs, urgent: mode === 'sync' });
    }
    for (const save of saves) if (!jobsToFlush.includes(save.transfer)) this.#save(save);
  }

  async waitForLayerLoad(_layer: number): Promise<void> {
    this.#onForward(true);
    for (const { transfer, mode } of this.#bound().loads) {
      if (mode === 'sync') await this.#loads.whenDecided(transfer);
    }
  }

  saveKvLayer(_layer: number): void {}

  waitForSave(): Promise<void> {
    this.#onForward(false);
    return Promise.resolve();
  }

  getFinished(): TransferReport {
    this.#collect();
    const stats = this.#isTimeToCount ? this.#takeStats() : undefined;
    const placeChanges = this.#tier.takeChanges?.() ?? [];
    const report: TransferReport = {
      finishedSending: this.#decidedSaves,
      finishedRecving: this.#decidedLoads,
      drained: this.#drained,
      failedRecving: [],
      saveFailures: this.#saveFailures,
      ...(this.#loadedElsewhere.length === 0 ? {} : { loadedElsewhere: this.#loadedElsewhere }),
      ...(this.#arrived.length === 0 ? {} : { arrived: this.#arrived }),
      evicted: this.#tier.takeEvicted(),
      ...(placeChanges.length === 0 ? {} : { placeChanges }),
      counters: {},
      ...(stats === undefined ? {} : { stats }),
      expectedFinishedCount: 0,
    };
    this.#decidedSaves = [];
    this.#decidedLoads = [];
    this.#drained = [];
    this.#saveFailures = [];
    this.#loadedElsewhere = [];
    this.#arrived = [];
    return report;
  }

  getBlockIdsWithLoadErrors(): readonly BlockLoadFailure[] {
    this.#collect();
    const failures = this.#loadFailures;
    this.#loadFailures = [];
    return failures;
  }

  clearConnectorMetadata(): void {
    this.#metadata = undefined;
  }

  shutdown({ timeoutMs }: { readonly timeoutMs: number }): Promise<{ readonly drained: boolean }> {
    this.#shutdown ??= this.#end(timeoutMs);
    return this.#shutdown;
  }

  checkInvariants(): void {
    this.#loads.checkInvariants();
    this.#saves.checkInvariants();
  }

  #save({ transfer, blocks }: SaveJob): void {
    this.#saves.submit({ transfer, blocks: blocks.filter(({ key }) => this.#hasKv(key)) });
  }

  async #load(item: LoadItem, signal: AbortSignal): Promise<LoadFailureReason | undefined> {
    const block = this.#pool().bytesOf(item.block);
    const reason = await (this.#guarded ?? this.#tier).load(item.key, block, signal, item);
    if (reason === undefined) {
      this.#totals.loadedBlocks++;
      this.#totals.loadedBytes += block.length;
    }
    return reason;
  }

  async #store(
    { key, saltTag }: SavedBlock,
    bytes: Uint8Array,
    signal: AbortSignal,
  ): Promise<SaveFailureReason | undefined> {
    const answer = await (this.#guarded ?? this.#tier).store(key, bytes, signal, saltTag && { saltTag });
    if (answer === 'stored') {
      this.#totals.savedBlocks++;
      this.#totals.savedBytes += bytes.length;
      return undefined;
    }
    if (answer === 'alreadyStored') return undefined;
    return answer === 'full' ? 'storeFull' : answer;
  }

  #collect(): void {
    const { loadFailed, saveFailed } = this.#totals;
    const loads = this.#loads.takeReport();
    this.#decidedLoads.push(...loads.decided);
    this.#drained.push(...loads.drained);
    for (const { transfer, item } of loads.done) this.#arrived.push({ transfer, block: item.block });
    for (const { transfer, item, reason, isBusy } of loads.failures) {
      increment(loadFailed, reason);
      this.#loadFailures.push({ transfer, block: item.block, reason, isBlockBusy: isBusy });
    }
    const saves = this.#saves.takeReport();
    this.#decidedSaves.push(...saves.decided);
    this.#drained.push(...saves.drained);
    for (const failure of saves.failures) {
      increment(saveFailed, failure.reason);
      this.#saveFailures.push(failure);
    }
  }

  get #isTimeToCount(): boolean {
    if (this.#context.clock.nowMs() - this.#countedAtMs >= countAgainMs) return true;
    for (const ended of [this.#decidedLoads, this.#decidedSaves, this.#drained, this.#arrived])
      if (ended.length > 0) return true;
    return this.#loadFailures.length > 0 || this.#saveFailures.length > 0;
  }

  /** The changes since the last report. */
  #takeStats(): ConnectorStats {
    this.#countedAtMs = this.#context.clock.nowMs();
    const lateCompletions = this.#loads.lateCount + this.#saves.lateCount;
    const { levels, ...others } = this.#stats?.() ?? {};
    const breakers = this.#guarded?.breakers('save');
    const now: ConnectorStats = {
      ...this.#totals,
      ...others,
      ...breakers,
      lateCompletions,
      own: this.#tier.counters(),
      levels: { ...levels, ...breakers?.levels, own: this.#tier.levels?.() ?? {} },
    };
    const change = changeOfStats(now, this.#reported);
    addStats(this.#reported, change);
    return change;
  }

  async #end(timeoutMs: number): Promise<{ readonly drained: boolean }> {
    this.#loads.close();
    // Also if a step has failed. Saves that wait for its end begin.
    this.#onForward(false);
    const drained = Promise.all([this.#saves.whenDrained(), this.#loads.whenDrained()]);
    const isOver = await settlesWithin(this.#context.timers, timeoutMs, drained);
    this.#saves.close();
    // Calls that the abort ends need a few turns of the event loop.
    for (let turn = 0; turn < abortTurns && !this.#isDrained; turn++) await nextTurn();
    const closing = this.#tier.close();
    // A store that hangs does not close.
    if (isOver) await closing;
    else closing.catch(() => undefined);
    return { drained: this.#isDrained };
  }

  /** No I/O touches the pool. */
  get #isDrained(): boolean {
    return this.#loads.openCount === 0 && !this.#saves.readsPool;
  }

  #pool(): BlockMemory {
    return assertDefined(this.#memory, 'the pool is not registered');
  }

  #bound(): ConnectorMetadata {
    return assertDefined(this.#metadata, 'no metadata is bound');
  }
}
