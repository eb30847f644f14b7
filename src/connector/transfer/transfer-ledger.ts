import { assert } from '../../base/assert.ts';
import type { Clock } from '../../base/clock.ts';
import type { BlockId, RequestId } from '../../core/ids.ts';
import {
  type ArrivedBlock,
  type ConnectorMetadata,
  type ConnectorOutput,
  type ConnectorPlan,
  emptyOutput,
  type FoundBlock,
  type LoadBlock,
  type LoadJob,
  type LoadMode,
  type SaveJob,
  type TransferId,
} from '../connector.ts';
import type { LoadFailureReason } from '../reasons.ts';

/** The pool's part of I5: a pinned block is neither allocated nor written. Pins are counted. */
export interface BlockPins {
  pin(block: BlockId): void;
  release(block: BlockId): void;
}

/**
 * How saves keep their blocks from being overwritten. `pins`: the pool does not allocate the blocks. `fences`: the pool may
 * allocate them, and then the next step flushes the save before it writes.
 */
export type SaveProtection = 'pins' | 'fences';

/** The result of a load. */
export interface DecidedLoad {
  readonly load: LoadJob;
  readonly loaded: readonly LoadBlock[];
  readonly failed: readonly FailedBlock[];
  /** Its request has ended or was preempted. */
  readonly isAbandoned: boolean;
}

export interface FailedBlock extends LoadBlock {
  readonly reason: LoadFailureReason;
  /** I/O may still write this block: it stays pinned, and its KV is computed into another block. */
  readonly isBlockBusy: boolean;
}

export interface LedgerChange {
  /** Blocks of loads that are not decided, with KV that is valid on all ranks. */
  readonly arrived: readonly ArrivedBlock[];
  readonly decided: readonly DecidedLoad[];
  /** The output without late, duplicate and unknown reports, for the scheduler side. */
  readonly accepted: ConnectorOutput;
}

/** A worker must report a load at most this long after the load's deadline. */
export const graceMs = 5_000;

/**
 * The engine's record of all transfers that are not finished. The connector decides which blocks to load and store. The
 * ledger enforces rules for every connector (I5, I6, I8):
 *
 *  - an id is used once;
 *  - a block is pinned while I/O touches it, or the save that reads it is flushed before the block is overwritten;
 *  - late reports are ignored;
 *  - a block that failed is not loaded from the same place again;
 *  - a load without a report expires.
 */
export class TransferLedger {
  readonly #clock: Clock;
  readonly #pins: BlockPins;
  readonly #protection: SaveProtection;
  readonly #loads = new Map<TransferId, OpenLoad>();
  readonly #saves = new Map<TransferId, OpenSave>();
  /** By block, the saves that read it; only with fences. */
  readonly #fences = new Map<BlockId, number>();
  /** Per request, the blocks that failed and their places: `place/key`. */
  readonly #failed = new Map<RequestId, Set<string>>();
  #lastId = 0;
  #unsent: LoadJob[] = [];
  #cancelled: TransferId[] = [];
  #jobsToFlush: TransferId[] = [];
  #late = 0;
  #flushedSaves = 0;

  constructor(clock: Clock, pins: BlockPins, protection: SaveProtection = 'pins') {
    this.#protection = protection;
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

  isOpen(id: TransferId): boolean {
    return this.#loads.has(id) || this.#saves.has(id);
  }

  /** False for a block that failed for this request from the same place. */
  isUsable(request: RequestId, block: FoundBlock): boolean {
    return this.#failed.get(request)?.has(nameOf(block)) !== true;
  }

  /** Orders a load and pins its blocks. The next metadata has the load. */
  openLoad(requestId: RequestId, mode: LoadMode, timeoutMs: number, blocks: readonly LoadBlock[]): LoadJob {
    assert(blocks.length > 0, 'a load without blocks');
    assert(new Set(blocks.map(({ block }) => block)).size === blocks.length, 'one block id for two blocks');
    for (const found of blocks) {
      assert(this.isUsable(requestId, found), `block ${found.key} failed for ${requestId} from ${found.place} before`);
      this.#pins.pin(found.block);
    }
    const load = Object.freeze({ transfer: this.newTransferId(), requestId, mode, timeoutMs, blocks });
    this.#loads.set(load.transfer, {
      load,
      failures: new Map(),
      pinned: new Set(blocks.map(({ block }) => block)),
      expiresAtMs: this.#clock.nowMs() + timeoutMs + graceMs,
      isDecided: false,
      isAbandoned: false,
    });
    this.#unsent.push(load);
    return load;
  }

  /** The request has ended or was preempted: its loads are cancelled, and their blocks stay pinned until drained. */
  abandon(requestId: RequestId): void {
    for (const [id, { load }] of this.#loads) if (load.requestId === requestId) this.abandonLoad(id);
  }

  /** As `abandon`, for one load. Ids that are not open are ignored. */
  abandonLoad(id: TransferId): void {
    const open = this.#loads.get(id);
    if (open === undefined || open.isAbandoned) return;
    open.isAbandoned = true;
    const at = this.#unsent.indexOf(open.load);
    if (at >= 0) {
      // No worker has the load: there is nothing to cancel.
      this.#unsent.splice(at, 1);
      this.#closeLoad(open);
    } else this.#cancelled.push(id);
  }

  /** The request has ended: its loads are abandoned, and its failures are forgotten. */
  forget(requestId: RequestId): void {
    this.abandon(requestId);
    this.#failed.delete(requestId);
  }

  /** The next step overwrites the block: it flushes the saves that still read it. */
  willOverwrite(block: BlockId): void {
    if (!this.#fences.has(block)) return;
    for (const open of this.#saves.values())
      if (open.isProtected && open.save.blocks.some((read) => read.block === block)) this.#flush(open);
  }

  /**
   * The metadata of a step: the engine's orders and the connector's plan. Pins or fences the blocks of the saves.
   * `isOverwritten`: this step overwrites the block, so it flushes its save.
   */
  composeMetadata(plan: ConnectorPlan, isOverwritten: (block: BlockId) => boolean = () => false): ConnectorMetadata {
    for (const save of plan.saves) {
      assert(
        !this.isOpen(save.transfer) && save.transfer <= this.#lastId,
        `save ${save.transfer} has an id that the ledger did not make`,
      );
      assert(save.blocks.length > 0, 'a save without blocks');
      const open: OpenSave = { save, isProtected: true, isDrained: false, isFinished: false };
      for (const { block } of save.blocks) this.#protect(block);
      this.#saves.set(save.transfer, open);
      if (save.blocks.some(({ block }) => isOverwritten(block))) this.#flush(open);
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

  /** Applies the report of all ranks. Reports about ids that are not open are counted and ignored. */
  apply(output: ConnectorOutput): LedgerChange {
    const accepted = this.#accept(output);
    for (const { transfer, block, reason, isBlockBusy } of accepted.loadFailures) {
      const { failures } = this.#loads.get(transfer)!;
      failures.set(block, merged(failures.get(block), { reason, isBlockBusy }));
    }
    for (const id of accepted.failedRecving) failWhole(this.#loads.get(id)!, 'storeFailed', false);
    const decided = accepted.finishedRecving.map((id) => this.#decide(this.#loads.get(id)!));
    for (const id of accepted.drained) {
      const load = this.#loads.get(id);
      if (load === undefined) this.#drainSave(this.#saves.get(id)!);
      else this.#closeLoad(load);
    }
    for (const id of accepted.finishedSending) {
      const open = this.#saves.get(id)!;
      open.isFinished = true;
      if (open.isDrained) this.#saves.delete(id);
    }
    return { arrived: accepted.arrived ?? nothing, decided, accepted };
  }

  /** Loads without a report long after their deadline: a worker is stuck, or a connector forgot them. */
  takeExpired(): readonly DecidedLoad[] {
    const nowMs = this.#clock.nowMs();
    const expired: DecidedLoad[] = [];
    for (const open of this.#loads.values()) {
      if (open.isDecided || open.expiresAtMs > nowMs) continue;
      // The workers may still write all blocks.
      failWhole(open, 'notReported', true);
      if (!open.isAbandoned) this.#cancelled.push(open.load.transfer);
      expired.push(this.#decide(open));
    }
    return expired;
  }

  /** When `takeExpired` may next return a load; undefined when all loads are decided. */
  nextExpiryMs(): number | undefined {
    let next: number | undefined;
    for (const { isDecided, expiresAtMs } of this.#loads.values()) {
      if (!isDecided && (next === undefined || expiresAtMs < next)) next = expiresAtMs;
    }
    return next;
  }

  /** Calls `visit` for each pin of a transfer. O(open blocks). */
  eachPin(visit: (block: BlockId) => void): void {
    for (const { pinned } of this.#loads.values()) for (const block of pinned) visit(block);
    if (this.#protection === 'pins') this.eachSavedBlock(visit);
  }

  /** Calls `visit` for each block that a save may still read, once per save. O(open blocks). */
  eachSavedBlock(visit: (block: BlockId) => void): void {
    for (const { save, isProtected } of this.#saves.values())
      if (isProtected) for (const { block } of save.blocks) visit(block);
  }

  #accept(output: ConnectorOutput): ConnectorOutput {
    if (output === emptyOutput) return output;
    const keep = <T>(items: readonly T[], isExpected: (item: T) => boolean): readonly T[] => {
      if (items.length === 0) return items;
      const kept = items.filter(isExpected);
      this.#late += items.length - kept.length;
      return kept;
    };
    const undecided = (id: TransferId): boolean => this.#loads.get(id)?.isDecided === false;
    const unfinished = (id: TransferId): boolean => this.#saves.get(id)?.isFinished === false;
    const finishedRecving = keep(output.finishedRecving, undecided);
    const finishing = new Set(finishedRecving);
    return {
      ...output,
      finishedRecving,
      // A load that is drained but not decided is ignored; it expires (`takeExpired`).
      drained: keep(output.drained, (id) => {
        const isLoad = this.#loads.get(id)?.isDecided === true || finishing.has(id);
        return isLoad || this.#saves.get(id)?.isDrained === false;
      }),
      failedRecving: keep(output.failedRecving, undecided),
      loadFailures: keep(
        output.loadFailures,
        ({ transfer, block: failed }) =>
          undecided(transfer) && this.#loads.get(transfer)!.load.blocks.some(({ block }) => block === failed),
      ),
      finishedSending: keep(output.finishedSending, unfinished),
      saveFailures: keep(output.saveFailures, ({ transfer }) => unfinished(transfer)),
      ...(output.arrived === undefined ? {} : { arrived: this.#acceptArrived(output, finishing) }),
    };
  }

  /** A block that failed on one rank, as after a worker's death, has not arrived. */
  #acceptArrived(
    { arrived = nothing, loadFailures }: ConnectorOutput,
    finishing: ReadonlySet<TransferId>,
  ): readonly ArrivedBlock[] {
    return arrived.filter(({ transfer, block }) => {
      const open = this.#loads.get(transfer);
      if (open === undefined || open.isDecided || finishing.has(transfer) || open.failures.has(block)) return false;
      if (loadFailures.some((failure) => failure.transfer === transfer && failure.block === block)) return false;
      return open.load.mode === 'async' && open.load.blocks.some((found) => found.block === block);
    });
  }

  #decide(open: OpenLoad): DecidedLoad {
    assert(!open.isDecided, `load ${open.load.transfer} is decided twice`);
    open.isDecided = true;
    const loaded: LoadBlock[] = [];
    const failed: FailedBlock[] = [];
    for (const found of open.load.blocks) {
      const { block } = found;
      const failure = open.failures.get(block);
      if (failure === undefined) loaded.push(found);
      else failed.push({ ...found, ...failure });
      if (failure?.isBlockBusy !== true && open.pinned.delete(block)) this.#pins.release(block);
    }
    if (!open.isAbandoned) this.#remember(open.load.requestId, failed);
    return { load: open.load, loaded, failed, isAbandoned: open.isAbandoned };
  }

  #remember(requestId: RequestId, failed: readonly FailedBlock[]): void {
    // After a worker died, another worker may load the same block from the same place.
    const failedInStore = failed.filter(({ reason }) => reason !== 'workerDied');
    if (failedInStore.length === 0) return;
    const names = this.#failed.get(requestId) ?? new Set();
    this.#failed.set(requestId, names);
    for (const block of failedInStore) names.add(nameOf(block));
  }

  #closeLoad(open: OpenLoad): void {
    for (const block of open.pinned) this.#pins.release(block);
    assert(this.#loads.delete(open.load.transfer), `load ${open.load.transfer} is closed twice`);
  }

  #drainSave(open: OpenSave): void {
    assert(!open.isDrained, `save ${open.save.transfer} is drained twice`);
    open.isDrained = true;
    this.#release(open);
    if (open.isFinished) this.#saves.delete(open.save.transfer);
  }

  #flush(open: OpenSave): void {
    assert(this.#protection === 'fences', `save ${open.save.transfer} cannot be flushed: its blocks are pinned`);
    this.#jobsToFlush.push(open.save.transfer);
    this.#release(open);
  }

  #protect(block: BlockId): void {
    if (this.#protection === 'pins') this.#pins.pin(block);
    else this.#fences.set(block, (this.#fences.get(block) ?? 0) + 1);
  }

  #release(open: OpenSave): void {
    if (!open.isProtected) return;
    open.isProtected = false;
    for (const { block } of open.save.blocks) {
      const count = this.#fences.get(block) ?? 0;
      if (this.#protection === 'pins') this.#pins.release(block);
      else if (count > 1) this.#fences.set(block, count - 1);
      else this.#fences.delete(block);
    }
  }
}

const nothing: readonly never[] = [];

interface BlockFailure {
  readonly reason: LoadFailureReason;
  readonly isBlockBusy: boolean;
}

/** Ranks may differ: the first reason about the store counts, and a block that is busy on one rank is busy. */
function merged(before: BlockFailure | undefined, now: BlockFailure): BlockFailure {
  if (before === undefined) return now;
  const { reason } = before.reason === 'workerDied' ? now : before;
  return { reason, isBlockBusy: before.isBlockBusy || now.isBlockBusy };
}

interface OpenLoad {
  readonly load: LoadJob;
  readonly failures: Map<BlockId, BlockFailure>;
  /** Blocks that I/O may touch: all until the load is decided, then the busy ones until it is drained. */
  readonly pinned: Set<BlockId>;
  readonly expiresAtMs: number;
  isDecided: boolean;
  isAbandoned: boolean;
}

interface OpenSave {
  readonly save: SaveJob;
  /** Its blocks are pinned or fenced: it is neither drained nor flushed. */
  isProtected: boolean;
  isDrained: boolean;
  isFinished: boolean;
}

function failWhole(open: OpenLoad, reason: LoadFailureReason, isBlockBusy: boolean): void {
  for (const { block } of open.load.blocks) {
    open.failures.set(block, merged(open.failures.get(block), { reason, isBlockBusy }));
  }
}

const nameOf = (block: FoundBlock): string => `${block.place}/${block.key}`;
