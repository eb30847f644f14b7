import { AssertionError, assert, assertDefined } from '../../base/assert.ts';
import type { BlockMemory } from '../../core/block-memory.ts';
import type { BlockId, RequestId } from '../../core/ids.ts';
import type { BlockKey } from '../block-key.ts';
import type {
  BlockLoadFailure,
  BlockSaveFailure,
  ConnectorMetadata,
  SaveJob,
  TransferId,
  TransferReport,
  WorkerConnector,
  WorkerConnectorContext,
} from '../connector.ts';
import type { LoadFailureReason, SaveFailureReason } from '../reasons.ts';
import { endOf, TransferQueue } from '../transfer/transfer-queue.ts';
import { CircuitBreaker, type CircuitBreakerOptions, circuitBreakerDefaults, type Permit } from './circuit-breaker.ts';
import { StagingBuffers } from './staging-buffers.ts';
import type { Tier, TierWrapping } from './tier.ts';
import { CountDifferences, countsOfBreaker, countsOfTier } from './tier-counters.ts';

export interface TierWorkerOptions {
  readonly loadsAtOnce: number;
  readonly savesAtOnce: number;
  /** Bytes of blocks that may wait to be written; further blocks are dropped. */
  readonly saveBufferBytes: number;
  readonly saveTimeoutMs: number;
  readonly breaker?: CircuitBreakerOptions;
}

interface LoadItem {
  readonly block: BlockId;
  readonly key: BlockKey;
  readonly index: number;
  readonly requestId: RequestId;
}

interface SaveItem {
  readonly key: BlockKey;
  /** A copy of the block. */
  readonly bytes: Uint8Array;
}

/**
 * The worker side of every connector that keeps blocks in a tier. Loads read from the tier directly into the pool. Saves
 * copy the blocks first, so that no block stays pinned for a slow store. If the buffers are full, blocks are not saved.
 */
export class TierWorker implements WorkerConnector {
  readonly #tier: Tier;
  readonly #context: WorkerConnectorContext;
  readonly #options: TierWorkerOptions;
  readonly #loads: TransferQueue<LoadItem, LoadFailureReason>;
  readonly #saves: TransferQueue<SaveItem, SaveFailureReason>;
  readonly #staging: StagingBuffers;
  readonly #loadBreaker: CircuitBreaker;
  readonly #saveBreaker: CircuitBreaker;
  #memory: BlockMemory | undefined;
  #metadata: ConnectorMetadata | undefined;
  #decidedLoads: TransferId[] = [];
  #decidedSaves: TransferId[] = [];
  #drained: TransferId[] = [];
  #loadFailures: BlockLoadFailure[] = [];
  #saveFailures: BlockSaveFailure[] = [];
  #counters: Record<string, number> = {};
  readonly #differences = new CountDifferences();
  #lateReported = 0;
  #shutdown: Promise<{ readonly drained: boolean }> | undefined;

  constructor(tier: Tier, context: WorkerConnectorContext & TierWrapping, options: TierWorkerOptions) {
    this.#tier = context.wrapTier?.(tier, context.identity) ?? tier;
    this.#context = context;
    this.#options = options;
    const { timers, wake: onChange, clock, identity } = context;
    this.#staging = new StagingBuffers(identity.blockBytes, options.saveBufferBytes);
    const breaker = options.breaker ?? circuitBreakerDefaults;
    // A disk that cannot be written may still be readable.
    this.#loadBreaker = new CircuitBreaker(clock, breaker);
    this.#saveBreaker = new CircuitBreaker(clock, breaker);
    this.#loads = new TransferQueue({
      concurrency: options.loadsAtOnce,
      clock,
      timers,
      run: (item, signal) => this.#load(item, signal),
      onChange,
    });
    this.#saves = new TransferQueue({
      concurrency: options.savesAtOnce,
      clock,
      timers,
      run: (item, signal) => this.#save(item, signal),
      onChange,
    });
  }

  registerKvCaches(memory: BlockMemory): void {
    assert(this.#memory === undefined, 'the pool is registered already');
    assert(
      memory.blockBytes === this.#context.identity.blockBytes,
      'the blocks of the pool have another size than in the identity',
    );
    this.#memory = memory;
  }

  /** Flushes need nothing, because saves are copied at once. */
  handlePreemptions(metadata: ConnectorMetadata): void {
    for (const id of metadata.cancelled) this.#loads.cancel(id);
  }

  bindConnectorMetadata(metadata: ConnectorMetadata): void {
    assert(this.#metadata === undefined, 'the metadata of the last step was not cleared');
    this.#metadata = metadata;
  }

  startLoadKv(): void {
    const { loads, saves } = this.#bound();
    for (const { transfer, requestId, mode, timeoutMs, blocks } of loads) {
      const items = blocks.map(({ block, key, index }) => ({ block, key, index, requestId }));
      this.#loads.submit(transfer, items, { timeoutMs, urgent: mode === 'sync' });
    }
    for (const save of saves) this.#stage(save);
  }

  async waitForLayerLoad(_layer: number): Promise<void> {
    for (const { transfer, mode } of this.#bound().loads) {
      if (mode === 'sync') await this.#loads.whenDecided(transfer);
    }
  }

  saveKvLayer(_layer: number): void {}

  waitForSave(): Promise<void> {
    return Promise.resolve();
  }

  getFinished(): TransferReport {
    this.#collect();
    this.#add('lateCompletions', this.#loads.lateCount + this.#saves.lateCount - this.#lateReported);
    this.#lateReported = this.#loads.lateCount + this.#saves.lateCount;
    this.#countTier();
    const report: TransferReport = {
      finishedSending: this.#decidedSaves,
      finishedRecving: this.#decidedLoads,
      drained: this.#drained,
      failedRecving: [],
      saveFailures: this.#saveFailures,
      evicted: this.#tier.takeEvicted(),
      counters: this.#counters,
      expectedFinishedCount: 0,
    };
    this.#decidedSaves = [];
    this.#decidedLoads = [];
    this.#drained = [];
    this.#saveFailures = [];
    this.#counters = {};
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

  async #load(item: LoadItem, signal: AbortSignal): Promise<LoadFailureReason | undefined> {
    const block = assertDefined(this.#memory, 'the pool is not registered').bytesOf(item.block);
    const reason = await guarded(this.#loadBreaker, signal, () => this.#tier.load(item.key, block, signal, item));
    if (reason !== undefined) this.#add(`loadFailed.${reason}`, 1);
    else {
      this.#add('loadedBlocks', 1);
      this.#add('loadedBytes', block.length);
    }
    return reason;
  }

  async #save({ key, bytes }: SaveItem, signal: AbortSignal): Promise<SaveFailureReason | undefined> {
    try {
      const answer = await guarded(this.#saveBreaker, signal, () => this.#tier.store(key, bytes, signal));
      if (answer === 'stored') {
        this.#add('savedBlocks', 1);
        this.#add('savedBytes', bytes.length);
        return undefined;
      }
      if (answer === 'alreadyStored') return undefined;
      return answer === 'full' ? 'storeFull' : answer;
    } finally {
      this.#staging.give(bytes);
    }
  }

  #stage({ transfer, blocks }: SaveJob): void {
    const memory = assertDefined(this.#memory, 'the pool is not registered');
    const items: SaveItem[] = [];
    for (const { key, block } of blocks) {
      const bytes = this.#staging.take();
      if (bytes === undefined) this.#failSave({ transfer, key, reason: 'queueFull' });
      else {
        bytes.set(memory.bytesOf(block));
        items.push({ key, bytes });
      }
    }
    this.#drained.push(transfer);
    this.#saves.submit(transfer, items, { timeoutMs: this.#options.saveTimeoutMs });
  }

  #collect(): void {
    const loads = this.#loads.takeReport();
    this.#decidedLoads.push(...loads.decided);
    this.#drained.push(...loads.drained);
    for (const { transfer, item, reason, isBusy } of loads.failures) {
      if (isQueueReason(reason)) this.#add(`loadFailed.${reason}`, 1);
      this.#loadFailures.push({ transfer, block: item.block, reason, isBlockBusy: isBusy });
    }
    const saves = this.#saves.takeReport();
    this.#decidedSaves.push(...saves.decided);
    for (const { transfer, item, reason, wasRunning } of saves.failures) {
      // An item that never ran returns its buffer here; an item that ran returns its buffer when it ends.
      if (isQueueReason(reason) && !wasRunning) this.#staging.give(item.bytes);
      this.#failSave({ transfer, key: item.key, reason });
    }
  }

  /** Adds the counters of the tier and of the breakers. */
  #countTier(): void {
    const counts = {
      ...countsOfTier(this.#tier),
      ...countsOfBreaker('load', this.#loadBreaker),
      ...countsOfBreaker('save', this.#saveBreaker),
    };
    for (const [name, difference] of Object.entries(this.#differences.take(counts))) this.#add(name, difference);
  }

  #failSave(failure: BlockSaveFailure): void {
    this.#add(`saveFailed.${failure.reason}`, 1);
    this.#saveFailures.push(failure);
  }

  async #end(timeoutMs: number): Promise<{ readonly drained: boolean }> {
    this.#loads.close();
    const { timers } = this.#context;
    let isOver = false;
    const timeout = new Promise<void>((resolve) => {
      const timer = timers.after(timeoutMs, resolve);
      void Promise.all([this.#saves.whenDrained(), this.#loads.whenDrained()]).then(() => {
        isOver = true;
        timer.cancel();
        resolve();
      });
    });
    await timeout;
    this.#saves.close();
    const closing = this.#tier.close();
    // A store that hangs does not close.
    if (isOver) await closing;
    else closing.catch(() => undefined);
    return { drained: this.#loads.openCount === 0 };
  }

  #bound(): ConnectorMetadata {
    return assertDefined(this.#metadata, 'no metadata is bound');
  }

  #add(name: string, count: number): void {
    if (count !== 0) this.#counters[name] = (this.#counters[name] ?? 0) + count;
  }
}

/** Reasons of the queue, before or while the item runs. All other reasons are results of the run. */
const isQueueReason = (reason: string): boolean => ['timedOut', 'cancelled', 'closed'].includes(reason);

/** Calls the store if the breaker allows it. A call that hangs counts as failed at its deadline, before it returns. */
async function guarded<T>(
  breaker: CircuitBreaker,
  signal: AbortSignal,
  call: () => Promise<T>,
): Promise<T | 'storeDown' | 'storeFailed'> {
  const permit = breaker.tryAcquire();
  if (permit === undefined) return 'storeDown';
  const onAbort = (): void => settleAborted(permit, signal);
  signal.addEventListener('abort', onAbort, { once: true });
  try {
    const answer = await call();
    permit.succeed();
    return answer;
  } catch (error) {
    if (error instanceof AssertionError) throw error;
    if (signal.aborted) settleAborted(permit, signal);
    else permit.fail();
    return 'storeFailed';
  } finally {
    signal.removeEventListener('abort', onAbort);
  }
}

function settleAborted(permit: Permit, signal: AbortSignal): void {
  if (endOf(signal) === 'timedOut') permit.fail();
  else permit.withdraw();
}
