import { assert } from '../../base/assert.ts';
import type { Clock } from '../../base/clock.ts';
import type { BlockId, RequestId } from '../../core/ids.ts';
import {
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

/** The pool's side of I5: a page that is held is neither handed out nor written, however often it is held. */
export interface BlockPins {
  pin(block: BlockId): void;
  release(block: BlockId): void;
}

/** What has become of a load. */
export interface DecidedLoad {
  readonly load: LoadJob;
  readonly loaded: readonly LoadBlock[];
  readonly failed: readonly FailedBlock[];
  /** It is no longer needed: its request has gone. */
  readonly isAbandoned: boolean;
}

export interface FailedBlock extends LoadBlock {
  readonly reason: LoadFailureReason;
  /** I/O may still write this page: it stays held, and what failed is computed into another one. */
  readonly isBlockBusy: boolean;
}

export interface LedgerChange {
  readonly decided: readonly DecidedLoad[];
  /** The output without what is late, double or unknown: for the scheduler half. */
  readonly accepted: ConnectorOutput;
}

/** How long after a load's deadline the worker must have said something. */
export const graceMs = 5_000;

/**
 * The engine's own book of transfers. A connector decides what to move; that ids are never used twice, pages held while
 * I/O touches them, loads not forgotten, late reports ignored, broken promises not believed again and silence not waited
 * for is decided here, whatever a connector does (I5, I6, I8).
 */
export class TransferLedger {
  readonly #clock: Clock;
  readonly #holds: BlockPins;
  readonly #loads = new Map<TransferId, OpenLoad>();
  readonly #saves = new Map<TransferId, OpenSave>();
  /** Per request, what failed and from where: `place/key`. */
  readonly #failed = new Map<RequestId, Set<string>>();
  #lastId = 0;
  #unsent: LoadJob[] = [];
  #cancelled: TransferId[] = [];
  #flushed: TransferId[] = [];
  #late = 0;

  constructor(clock: Clock, holds: BlockPins) {
    this.#clock = clock;
    this.#holds = holds;
  }

  /** Transfers that are not decided or still touch pages. */
  get openCount(): number {
    return this.#loads.size + this.#saves.size;
  }

  /** Reports that were late, double or about nothing we know. */
  get ignoredCount(): number {
    return this.#late;
  }

  /** Whether a step is needed to carry an order to the workers. */
  get hasUnsent(): boolean {
    return this.#unsent.length > 0 || this.#cancelled.length > 0 || this.#flushed.length > 0;
  }

  newTransferId(): TransferId {
    return ++this.#lastId as TransferId;
  }

  isOpen(id: TransferId): boolean {
    return this.#loads.has(id) || this.#saves.has(id);
  }

  /** A block that failed for a request is not believed to be in the same place again, as long as the request lives. */
  isUsable(request: RequestId, block: FoundBlock): boolean {
    return this.#failed.get(request)?.has(nameOf(block)) !== true;
  }

  /** Orders a load; its pages are held from now on. Goes out with the next metadata. */
  openLoad(requestId: RequestId, mode: LoadMode, timeoutMs: number, blocks: readonly LoadBlock[]): LoadJob {
    assert(blocks.length > 0, 'a load of nothing');
    assert(new Set(blocks.map(({ block }) => block)).size === blocks.length, 'two blocks for one page');
    for (const block of blocks) {
      assert(this.isUsable(requestId, block), `block ${block.key} failed for ${requestId} from ${block.place} before`);
      this.#holds.pin(block.block);
    }
    const load = Object.freeze({ transfer: this.newTransferId(), requestId, mode, timeoutMs, blocks });
    this.#loads.set(load.transfer, {
      load,
      failures: new Map(),
      held: new Set(blocks.map(({ block }) => block)),
      expiresAtMs: this.#clock.nowMs() + timeoutMs + graceMs,
      isDecided: false,
      isAbandoned: false,
    });
    this.#unsent.push(load);
    return load;
  }

  /** The request has gone (aborted, preempted, ended): its loads are cancelled, their pages stay held until drained. */
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
      // No worker has heard of it: nothing to cancel.
      this.#unsent.splice(at, 1);
      this.#closeLoad(open);
    } else this.#cancelled.push(id);
  }

  /** The request has ended: what failed for it is of no interest any more. */
  forget(requestId: RequestId): void {
    this.abandon(requestId);
    this.#failed.delete(requestId);
  }

  /** The pool wants pages back: saves that read one of them and have not begun are dropped. */
  flush(isWanted: (block: BlockId) => boolean): void {
    for (const { save, isDrained } of this.#saves.values()) {
      if (isDrained || this.#flushed.includes(save.transfer)) continue;
      if (save.blocks.some(({ block }) => isWanted(block))) this.#flushed.push(save.transfer);
    }
  }

  /** The step's metadata: the engine's orders and the connector's plan. The pages of saves are held from now on. */
  composeMetadata(plan: ConnectorPlan): ConnectorMetadata {
    for (const save of plan.saves) {
      assert(!this.isOpen(save.transfer) && save.transfer <= this.#lastId, `save ${save.transfer} has no id of ours`);
      assert(save.blocks.length > 0, 'a save of nothing');
      for (const { block } of save.blocks) this.#holds.pin(block);
      this.#saves.set(save.transfer, { save, isDrained: false, isFinished: false });
    }
    const metadata: ConnectorMetadata = Object.freeze({
      loads: this.#unsent,
      saves: plan.saves,
      cancelled: this.#cancelled,
      flushed: this.#flushed,
      ...(plan.extra === undefined ? {} : { extra: plan.extra }),
    });
    this.#unsent = [];
    this.#cancelled = [];
    this.#flushed = [];
    return metadata;
  }

  /** Takes all ranks' report. Everything that is not open any more is counted and ignored. */
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
    return { decided, accepted };
  }

  /** Loads of which nobody has said anything long after their deadline: a worker is stuck, or a connector forgot them. */
  takeExpired(): readonly DecidedLoad[] {
    const nowMs = this.#clock.nowMs();
    const expired: DecidedLoad[] = [];
    for (const open of this.#loads.values()) {
      if (open.isDecided || open.expiresAtMs > nowMs) continue;
      // It is unknown what its workers still do.
      failWhole(open, 'lost', true);
      if (!open.isAbandoned) this.#cancelled.push(open.load.transfer);
      expired.push(this.#decide(open));
    }
    return expired;
  }

  /** When `takeLost` may next have something; undefined when no load is undecided. */
  nextExpiryMs(): number | undefined {
    let next: number | undefined;
    for (const { isDecided, expiresAtMs } of this.#loads.values()) {
      if (!isDecided && (next === undefined || expiresAtMs < next)) next = expiresAtMs;
    }
    return next;
  }

  /** Tells of each page that transfers hold, as often as they hold it. O(open blocks). */
  eachHold(tell: (block: BlockId) => void): void {
    for (const { held } of this.#loads.values()) for (const block of held) tell(block);
    for (const { save, isDrained } of this.#saves.values()) {
      if (!isDrained) for (const { block } of save.blocks) tell(block);
    }
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
      // Drained without being decided would be a promise that nobody can rely on: it waits for the watchdog.
      drained: keep(output.drained, (id) => {
        const isLoad = this.#loads.get(id)?.isDecided === true || finishing.has(id);
        return isLoad || this.#saves.get(id)?.isDrained === false;
      }),
      failedRecving: keep(output.failedRecving, undecided),
      loadFailures: keep(
        output.loadFailures,
        ({ transfer, block: page }) =>
          undecided(transfer) && this.#loads.get(transfer)!.load.blocks.some((block) => block.block === page),
      ),
      finishedSending: keep(output.finishedSending, unfinished),
      saveFailures: keep(output.saveFailures, ({ transfer }) => unfinished(transfer)),
    };
  }

  #decide(open: OpenLoad): DecidedLoad {
    assert(!open.isDecided, `load ${open.load.transfer} is decided twice`);
    open.isDecided = true;
    const loaded: LoadBlock[] = [];
    const failed: FailedBlock[] = [];
    for (const block of open.load.blocks) {
      const failure = open.failures.get(block.block);
      if (failure === undefined) loaded.push(block);
      else failed.push({ ...block, ...failure });
      if (failure?.isBlockBusy !== true && open.held.delete(block.block)) this.#holds.release(block.block);
    }
    if (!open.isAbandoned) this.#remember(open.load.requestId, failed);
    return { load: open.load, loaded, failed, isAbandoned: open.isAbandoned };
  }

  #remember(requestId: RequestId, failed: readonly FailedBlock[]): void {
    // What a dead worker was loading may be loaded again: by another worker, from the same place.
    const told = failed.filter(({ reason }) => reason !== 'workerDied');
    if (told.length === 0) return;
    const broken = this.#failed.get(requestId) ?? new Set();
    this.#failed.set(requestId, broken);
    for (const block of told) broken.add(nameOf(block));
  }

  #closeLoad(open: OpenLoad): void {
    for (const block of open.held) this.#holds.release(block);
    assert(this.#loads.delete(open.load.transfer), `load ${open.load.transfer} is closed twice`);
  }

  #drainSave(open: OpenSave): void {
    assert(!open.isDrained, `save ${open.save.transfer} is drained twice`);
    open.isDrained = true;
    for (const { block } of open.save.blocks) this.#holds.release(block);
    if (open.isFinished) this.#saves.delete(open.save.transfer);
  }
}

interface BlockFailure {
  readonly reason: LoadFailureReason;
  readonly isBlockBusy: boolean;
}

/** Ranks may differ: the first reason that tells about the store counts, and a page that is busy on one rank is busy. */
function merged(before: BlockFailure | undefined, now: BlockFailure): BlockFailure {
  if (before === undefined) return now;
  const { reason } = before.reason === 'workerDied' ? now : before;
  return { reason, isBlockBusy: before.isBlockBusy || now.isBlockBusy };
}

interface OpenLoad {
  readonly load: LoadJob;
  readonly failures: Map<BlockId, BlockFailure>;
  /** Pages that I/O may touch: all until it is decided, then the busy ones until it is drained. */
  readonly held: Set<BlockId>;
  readonly expiresAtMs: number;
  isDecided: boolean;
  isAbandoned: boolean;
}

interface OpenSave {
  readonly save: SaveJob;
  isDrained: boolean;
  isFinished: boolean;
}

function failWhole(open: OpenLoad, reason: LoadFailureReason, isBlockBusy: boolean): void {
  for (const { block } of open.load.blocks) {
    open.failures.set(block, merged(open.failures.get(block), { reason, isBlockBusy }));
  }
}

const nameOf = (block: FoundBlock): string => `${block.place}/${block.key}`;
