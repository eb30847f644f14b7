import { assert } from '../../base/assert.ts';
import type { Clock } from '../../base/clock.ts';
import type { BlockId, RequestId } from '../../core/ids.ts';
import type { BlockKey } from '../block-key.ts';
import {
  type ConnectorMetadata,
  type ConnectorOutput,
  type ConnectorPlan,
  emptyOutput,
  type FoundBlock,
  type KvBlock,
  type LoadJob,
  type LoadOutcome,
  type PlaceChange,
  type RankReport,
  type SaveOutcome,
  type TransferId,
  type TransferOutcomes,
  type WantedBlock,
} from '../connector.ts';
import { OpenLoad, OpenSave } from './open-transfer.ts';
import { RankCounters } from './rank-counters.ts';

/** The pool's part of I5: a pinned block is neither allocated nor written. Pins are counted. */
export interface BlockPins {
  pin(block: BlockId): void;
  release(block: BlockId): void;
}

/** What a report said about one load. */
export interface LoadChange<Owner> {
  readonly load: OpenLoad<Owner>;
  /** Of a decided load: all its blocks. Else those that have arrived since the last change. */
  readonly blocks: readonly LoadOutcome[];
}

export interface LedgerChange<Owner> {
  /** Of loads that a request waits for. */
  readonly loads: readonly LoadChange<Owner>[];
  readonly outcomes: TransferOutcomes;
}

/** A worker must report a load at most this long after the load's deadline. */
export const graceMs = 5_000;

/**
 * The engine's only record of transfers, from their order to the last report of the last rank. The connector decides which
 * blocks to load and store. The ledger enforces rules for every connector (I5, I6, I8):
 *
 *  - an id is used once, and each rank reports an end once: further reports are counted and ignored;
 *  - a load is decided, or drained, when all ranks have reported that, and a block that failed on one rank has failed;
 *  - a block is pinned while I/O touches it, or the save that reads it is flushed before the block is overwritten;
 *  - a block that failed is not loaded from the same place again for the same request;
 *  - a load without a report expires, and the transfers of a process that died have ended.
 *
 * `Owner`: what the engine keeps with a load.
 */
export class TransferLedger<Owner = undefined> {
  readonly #clock: Clock;
  readonly #pins: BlockPins;
  readonly #loads = new Map<TransferId, OpenLoad<Owner>>();
  readonly #saves = new Map<TransferId, OpenSave>();
  /** In how many undecided saves each block is. */
  readonly #saving = new Map<BlockKey, number>();
  /** By block, how many saves read it. The pool may allocate such a block. */
  readonly #fences = new Map<BlockId, number>();
  /** Per request and block, the places from which a load failed. */
  readonly #failed = new Map<RequestId, Map<BlockKey, string[]>>();
  readonly #counters = new RankCounters();
  /** How many ranks report; undefined: those that are there. */
  #expected: number | undefined;
  #lastId = 0;
  #unsent: LoadJob[] = [];
  #cancelled: TransferId[] = [];
  #jobsToFlush: TransferId[] = [];
  #late = 0;
  #flushedSaves = 0;

  constructor(clock: Clock, pins: BlockPins) {
    this.#clock = clock;
    this.#pins = pins;
  }

  /** Transfers that are not decided or not drained. */
  get openCount(): number {
    return this.#loads.size + this.#saves.size;
  }

  /** Reports that were late, duplicate or about unknown ids. */
  get ignoredCount(): number {
    return this.#late;
  }

  /** Saves that a step had to flush before it overwrote their blocks. */
  get flushedSaves(): number {
    return this.#flushedSaves;
  }

  /** Whether a step is needed to send orders to the workers. */
  get hasUnsent(): boolean {
    return this.#unsent.length > 0 || this.#cancelled.length > 0 || this.#jobsToFlush.length > 0;
  }

  newTransferId(): TransferId {
    return ++this.#lastId as TransferId;
  }

  /** Whether a request waits for the load. */
  isAwaited(id: TransferId): boolean {
    return this.#loads.get(id)?.isAwaited === true;
  }

  /** Loads that a request waits for. */
  awaited(): OpenLoad<Owner>[] {
    return [...this.#loads.values()].filter(({ isAwaited }) => isAwaited);
  }

  isSaving(key: BlockKey): boolean {
    return this.#saving.has(key);
  }

  /** False for a block that failed for this request from the same place. */
  isUsable(request: RequestId, { key, place }: FoundBlock): boolean {
    return this.#failed.get(request)?.get(key)?.includes(place) !== true;
  }

  /** The blocks with what the ledger knows of them, for the connector. */
  wanted(request: RequestId, blocks: readonly KvBlock[]): readonly WantedBlock[] {
    const failed = this.#failed.get(request);
    if (failed === undefined && this.#saving.size === 0) return blocks;
    return blocks.map((block) => {
      const failedFrom = failed?.get(block.key);
      const isSaving = this.isSaving(block.key);
      if (failedFrom === undefined && !isSaving) return block;
      return { ...block, ...(failedFrom === undefined ? {} : { failedFrom }), ...(isSaving ? { isSaving } : {}) };
    });
  }

  /** Orders a load and pins its blocks. The next metadata has the load. */
  openLoad(
    requestId: RequestId,
    { cacheSalt, ...load }: Pick<LoadJob, 'mode' | 'timeoutMs' | 'blocks'> & { cacheSalt?: string | undefined },
    owner: Owner,
  ): LoadJob {
    const { timeoutMs, blocks } = load;
    assert(blocks.length > 0, 'a load without blocks');
    assert(new Set(blocks.map(({ block }) => block)).size === blocks.length, 'one block id for two blocks');
    for (const found of blocks) {
      assert(this.isUsable(requestId, found), `block ${found.key} failed for ${requestId} from ${found.place} before`);
      this.#pins.pin(found.block);
    }
    const salt = cacheSalt === undefined ? {} : { cacheSalt };
    const job: LoadJob = Object.freeze({ transfer: this.newTransferId(), requestId, ...load, ...salt });
    const nowMs = this.#clock.nowMs();
    this.#loads.set(job.transfer, new OpenLoad(job, owner, nowMs, nowMs + timeoutMs + graceMs));
    this.#unsent.push(job);
    return job;
  }

  /** No request waits for the load: it is cancelled, and its blocks stay pinned until it is drained. */
  abandon(load: OpenLoad<Owner>): void {
    assert(load.isAwaited, `load ${load.job.transfer} is abandoned, and no request waits for it`);
    load.isAbandoned = true;
    const at = this.#unsent.indexOf(load.job);
    if (at >= 0) {
      // No worker has the load: there is nothing to cancel.
      this.#unsent.splice(at, 1);
      this.#closeLoad(load);
    } else this.#cancelled.push(load.job.transfer);
  }

  /** The request has ended. Other requests may still wait for its loads. */
  forget(requestId: RequestId): void {
    this.#failed.delete(requestId);
    for (const load of this.#loads.values()) if (load.job.requestId === requestId) load.isOwnerOver = true;
  }

  /** The next step overwrites the block: it flushes the saves that still read it. */
  willOverwrite(block: BlockId): void {
    if (!this.#fences.has(block)) return;
    for (const save of this.#saves.values())
      if (save.isFenced && save.job.blocks.some((read) => read.block === block)) this.#flush(save);
  }

  /**
   * The metadata of a step: the engine's orders and the connector's plan. Fences the blocks of the saves.
   * `isOverwritten`: this step overwrites the block, so it flushes its save.
   */
  composeMetadata(plan: ConnectorPlan, isOverwritten: (block: BlockId) => boolean = () => false): ConnectorMetadata {
    for (const job of plan.saves) {
      const { transfer, blocks } = job;
      const isNew = !this.#saves.has(transfer) && !this.#loads.has(transfer) && transfer <= this.#lastId;
      assert(isNew, `save ${transfer} has an id that the ledger did not make`);
      assert(blocks.length > 0, 'a save without blocks');
      const save = new OpenSave(job);
      for (const { block, key } of blocks) {
        this.#fences.set(block, (this.#fences.get(block) ?? 0) + 1);
        this.#saving.set(key, (this.#saving.get(key) ?? 0) + 1);
      }
      this.#saves.set(transfer, save);
      if (blocks.some(({ block }) => isOverwritten(block))) this.#flush(save);
    }
    this.#flushedSaves += this.#jobsToFlush.length;
    const metadata: ConnectorMetadata = Object.freeze({
      loads: this.#unsent,
      saves: plan.saves,
      cancelled: this.#cancelled,
      jobsToFlush: this.#jobsToFlush,
      ...(plan.extra === undefined ? {} : { extra: plan.extra }),
    });
    this.#unsent = [];
    this.#cancelled = [];
    this.#jobsToFlush = [];
    return metadata;
  }

  /** Applies the reports of a step, one of each rank, and ends the loads that should have been reported long ago. */
  apply(reports: readonly RankReport[]): LedgerChange<Owner> {
    const evicted = new Set<BlockKey>();
    const placeChanges: PlaceChange[] = [];
    this.#counters.begin();
    for (const report of reports)
      if (typeof report === 'object' && report.expectedFinishedCount > 0) this.#expected = report.expectedFinishedCount;
    const expected = this.#expected ?? reports.length;
    for (const [rank, report] of reports.entries()) {
      // Most ranks report nothing in most steps.
      if (report === undefined || report === emptyOutput) continue;
      if (report === 'workerDied') {
        this.#workerDied(rank, expected);
        continue;
      }
      this.#counters.add(rank, report.counters);
      if (report.stats !== undefined) this.#counters.addStats(rank, report.stats);
      this.#applyLoads(report, rank, expected);
      this.#applySaves(report, rank, expected);
      this.#late += report.drained.filter((id) => !this.#drainedOn(id, rank, expected)).length;
      for (const key of report.evicted) evicted.add(key);
      if (report.placeChanges !== undefined) placeChanges.push(...report.placeChanges);
    }
    const { sums: counters, stats } = this.#counters;
    const loads: LoadOutcome[] = [];
    const changes = this.#changedLoads(loads);
    return {
      loads: changes,
      outcomes: {
        loads,
        saves: this.#endedSaves(),
        evicted: [...evicted],
        placeChanges,
        counters,
        ...(stats === undefined ? {} : { stats }),
      },
    };
  }

  /** When a load expires next; undefined when all loads are decided. */
  nextExpiryMs(): number | undefined {
    let next: number | undefined;
    for (const { isDecided, expiresAtMs } of this.#loads.values()) {
      if (!isDecided && (next === undefined || expiresAtMs < next)) next = expiresAtMs;
    }
    return next;
  }

  /** Calls `visit` for each pin of a load. O(open blocks). */
  eachPin(visit: (block: BlockId) => void): void {
    for (const { pinned } of this.#loads.values()) for (const block of pinned) visit(block);
  }

  /** Calls `visit` for each block that a save may still read, once per save. O(open blocks). */
  eachSavedBlock(visit: (block: BlockId) => void): void {
    for (const { job, isFenced } of this.#saves.values())
      if (isFenced) for (const { block } of job.blocks) visit(block);
  }

  #applyLoads(report: ConnectorOutput, rank: number, expected: number): void {
    const undecided = (id: TransferId): OpenLoad<Owner> | undefined => {
      const load = this.#loads.get(id);
      return load?.isDecided === false ? load : undefined;
    };
    for (const { transfer, block, reason, isBlockBusy } of report.loadFailures) {
      const load = undecided(transfer);
      if (load?.has(block) !== true) this.#late++;
      else load.fail(block, { reason, isBlockBusy });
    }
    for (const id of report.failedRecving) {
      const load = undecided(id);
      if (load === undefined) this.#late++;
      else load.failAll({ reason: 'storeFailed', isBlockBusy: false });
    }
    for (const { transfer, block, place } of report.loadedElsewhere ?? []) undecided(transfer)?.servedBy(block, place);
    for (const { transfer, block } of report.arrived ?? []) undecided(transfer)?.arrived(block, rank, expected);
    for (const id of report.finishedRecving) if (undecided(id)?.decided.add(rank, expected) !== true) this.#late++;
  }

  #applySaves(report: ConnectorOutput, rank: number, expected: number): void {
    const undecided = (id: TransferId): OpenSave | undefined => {
      const save = this.#saves.get(id);
      return save?.isDecided === false ? save : undefined;
    };
    for (const { transfer, key, reason } of report.saveFailures) {
      const save = undecided(transfer);
      if (save?.has(key) !== true) this.#late++;
      else save.fail(key, reason);
    }
    for (const id of report.finishedSending) if (undecided(id)?.decided.add(rank, expected) !== true) this.#late++;
  }

  /** False: a late, duplicate or unknown report. */
  #drainedOn(id: TransferId, rank: number, expected: number): boolean {
    return (this.#loads.get(id) ?? this.#saves.get(id))?.drained.add(rank, expected) === true;
  }

  /** The memory of the rank is gone: its transfers have ended, and what it had not reported has failed. */
  #workerDied(rank: number, expected: number): void {
    this.#counters.died(rank);
    for (const load of this.#loads.values()) {
      load.drained.add(rank, expected);
      if (load.isDecided || !load.decided.add(rank, expected)) continue;
      load.failAll({ reason: 'workerDied', isBlockBusy: false });
      this.#counters.addStats(rank, { loadFailed: { workerDied: load.job.blocks.length } });
    }
    for (const save of this.#saves.values()) {
      save.drained.add(rank, expected);
      if (save.isDecided || !save.decided.add(rank, expected)) continue;
      for (const { key } of save.job.blocks) save.fail(key, 'workerDied');
      this.#counters.addStats(rank, { saveFailed: { workerDied: save.job.blocks.length } });
    }
  }

  /** Adds the outcomes to `outcomes`, each once. */
  #changedLoads(outcomes: LoadOutcome[]): LoadChange<Owner>[] {
    const changes: LoadChange<Owner>[] = [];
    if (this.#loads.size === 0) return changes;
    const nowMs = this.#clock.nowMs();
    for (const load of this.#loads.values()) {
      const { job, isAwaited } = load;
      const isExpired = !load.isDecided && load.expiresAtMs <= nowMs;
      if (isExpired && !load.decided.isOver) {
        // The workers may still write all blocks.
        load.failAll({ reason: 'notReported', isBlockBusy: true });
        if (!load.isAbandoned) this.#cancelled.push(job.transfer);
      }
      const isDecidedNow = !load.isDecided && (isExpired || load.decided.isOver);
      const blocks = isDecidedNow ? this.#decide(load) : load.isDecided ? nothing : load.takeArrived();
      for (const block of blocks) if (!isDecidedNow || !load.hasArrived(block.block)) outcomes.push(block);
      if (blocks.length > 0 && isAwaited) changes.push({ load, blocks });
      if (load.isDecided && load.drained.isOver) this.#closeLoad(load);
    }
    return changes;
  }

  #decide(load: OpenLoad<Owner>): readonly LoadOutcome[] {
    const blocks = load.decide();
    const { requestId } = load.job;
    for (const { block, key, place, result, isBlockBusy } of blocks) {
      if (!isBlockBusy && load.pinned.delete(block)) this.#pins.release(block);
      // After a worker died, another worker may load the same block from the same place.
      if (result === 'loaded' || result === 'workerDied' || load.isAbandoned || load.isOwnerOver) continue;
      const failed = this.#failed.get(requestId) ?? new Map<BlockKey, string[]>();
      this.#failed.set(requestId, failed.set(key, [...(failed.get(key) ?? []), place]));
    }
    return blocks;
  }

  #closeLoad(load: OpenLoad<Owner>): void {
    for (const block of load.pinned) this.#pins.release(block);
    this.#loads.delete(load.job.transfer);
  }

  #endedSaves(): SaveOutcome[] {
    const outcomes: SaveOutcome[] = [];
    for (const save of this.#saves.values()) {
      if (save.drained.isOver) this.#unfence(save);
      if (save.decided.isOver && !save.isDecided) {
        outcomes.push(...save.decide());
        for (const { key } of save.job.blocks) {
          const count = this.#saving.get(key)! - 1;
          if (count > 0) this.#saving.set(key, count);
          else this.#saving.delete(key);
        }
      }
      if (save.isDecided && save.drained.isOver) this.#saves.delete(save.job.transfer);
    }
    return outcomes;
  }

  #flush(save: OpenSave): void {
    this.#jobsToFlush.push(save.job.transfer);
    this.#unfence(save);
  }

  #unfence(save: OpenSave): void {
    if (!save.isFenced) return;
    save.isFenced = false;
    for (const { block } of save.job.blocks) {
      const count = this.#fences.get(block) ?? 0;
      if (count > 1) this.#fences.set(block, count - 1);
      else this.#fences.delete(block);
    }
  }
}

const nothing: readonly never[] = [];
