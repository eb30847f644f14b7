import { assert } from '../../base/assert.ts';
import type { BlockId } from '../../core/ids.ts';
import type { BlockKey } from '../block-key.ts';
import type { LoadBlock, LoadJob, LoadOutcome, SaveJob, SaveOutcome } from '../connector.ts';
import type { LoadFailureReason, SaveFailureReason } from '../reasons.ts';

/** The ranks that have reported one thing about a transfer. It is over when as many have reported it as were expected at the first report. */
class RanksReported {
  readonly #ranks = new Set<number>();
  #expected = Infinity;

  get isOver(): boolean {
    return this.#ranks.size >= this.#expected;
  }

  /** False: the rank has reported it before. */
  add(rank: number, expected: number): boolean {
    if (this.#ranks.size === 0) this.#expected = expected;
    const before = this.#ranks.size;
    return before < this.#ranks.add(rank).size;
  }

  has(rank: number): boolean {
    return this.#ranks.has(rank);
  }
}

/** Which ends of a transfer the ranks have reported. */
abstract class OpenTransfer {
  readonly decided = new RanksReported();
  readonly drained = new RanksReported();
  /** The results of its blocks are known. */
  isDecided: boolean = false;
}

interface BlockFailure {
  readonly reason: LoadFailureReason;
  readonly isBlockBusy: boolean;
}

/** A load that is not drained, on all ranks. `Owner`: what the engine keeps with it. */
export class OpenLoad<Owner> extends OpenTransfer {
  readonly job: LoadJob;
  readonly owner: Owner;
  readonly orderedMs: number;
  readonly expiresAtMs: number;
  /** Blocks that I/O may touch: all until the load is decided, then the busy ones until it is drained. */
  readonly pinned: Set<BlockId>;
  /** No request waits for it. */
  isAbandoned: boolean = false;
  /** Its request has ended: failures need not be remembered. */
  isOwnerOver: boolean = false;
  /** Made when the first block arrives. */
  #byId: ReadonlyMap<BlockId, LoadBlock> | undefined;
  readonly #failures = new Map<BlockId, BlockFailure>();
  readonly #servedBy = new Map<BlockId, string>();
  /** Blocks that some ranks have. */
  readonly #arrivals = new Map<BlockId, RanksReported>();
  /** Blocks that all ranks have since the last call of `takeArrived`, and those of earlier calls. */
  #arrivedNow: LoadBlock[] = [];
  readonly #arrived = new Set<BlockId>();

  constructor(job: LoadJob, owner: Owner, orderedMs: number, expiresAtMs: number) {
    super();
    this.job = job;
    this.owner = owner;
    this.orderedMs = orderedMs;
    this.expiresAtMs = expiresAtMs;
    this.pinned = new Set(job.blocks.map(({ block }) => block));
  }

  /** Whether a request waits for it. */
  get isAwaited(): boolean {
    return !this.isDecided && !this.isAbandoned;
  }

  has(block: BlockId): boolean {
    return this.job.blocks.some((found) => found.block === block);
  }

  /**
   * Ranks may differ: the first reason about the store counts, and a block that is busy on one rank is busy. A block that has arrived
   * has its outcome: if a worker dies, all its blocks are reported as invalid, too.
   */
  fail(block: BlockId, now: BlockFailure): void {
    if (this.#arrived.has(block)) return;
    const before = this.#failures.get(block) ?? now;
    const { reason } = before.reason === 'workerDied' ? now : before;
    this.#failures.set(block, { reason, isBlockBusy: before.isBlockBusy || now.isBlockBusy });
  }

  failAll(failure: BlockFailure): void {
    for (const { block } of this.job.blocks) this.fail(block, failure);
  }

  servedBy(block: BlockId, place: string): void {
    this.#servedBy.set(block, place);
  }

  arrived(block: BlockId, rank: number, expected: number): void {
    if (this.job.mode === 'sync') return;
    this.#byId ??= new Map(this.job.blocks.map((found) => [found.block, found]));
    const found = this.#byId.get(block);
    if (found === undefined || this.#arrived.has(block)) return;
    const ranks = this.#arrivals.get(block) ?? new RanksReported();
    if (ranks.add(rank, expected) && ranks.isOver) {
      this.#arrivals.delete(block);
      this.#arrivedNow.push(found);
    } else this.#arrivals.set(block, ranks);
  }

  /**
   * Blocks that have arrived on all ranks since the last call, while the load is not decided. A block that failed on one rank, as
   * after a worker's death, has not arrived.
   */
  takeArrived(): readonly LoadOutcome[] {
    if (this.#arrivedNow.length === 0) return nothing;
    const arrived = this.#arrivedNow.filter(({ block }) => !this.#failures.has(block) && !this.#arrived.has(block));
    this.#arrivedNow = [];
    for (const { block } of arrived) this.#arrived.add(block);
    return arrived.map((found) => this.#outcomeOf(found));
  }

  /** The outcomes of all blocks. */
  decide(): readonly LoadOutcome[] {
    assert(!this.isDecided, `load ${this.job.transfer} is decided twice`);
    this.isDecided = true;
    return this.job.blocks.map((found) => this.#outcomeOf(found));
  }

  /** Whether `takeArrived` has returned the block. */
  hasArrived(block: BlockId): boolean {
    return this.#arrived.has(block);
  }

  #outcomeOf(found: LoadBlock): LoadOutcome {
    const { transfer, requestId } = this.job;
    const { group, index, key, block, place: promised } = found;
    const { reason: result = 'loaded', isBlockBusy = false } = this.#failures.get(block) ?? {};
    const place = result === 'loaded' ? (this.#servedBy.get(block) ?? promised) : promised;
    return { transfer, requestId, group, index, key, block, place, result, isBlockBusy };
  }
}

/** A save that is not decided or not drained, on all ranks. */
export class OpenSave extends OpenTransfer {
  readonly job: SaveJob;
  /** The pool may allocate its blocks, and then a step flushes it. False: it is drained or flushed. */
  isFenced: boolean = true;
  readonly #failures = new Map<BlockKey, SaveFailureReason>();

  constructor(job: SaveJob) {
    super();
    this.job = job;
  }

  has(key: BlockKey): boolean {
    return this.job.blocks.some((saved) => saved.key === key);
  }

  fail(key: BlockKey, reason: SaveFailureReason): void {
    if (!this.#failures.has(key)) this.#failures.set(key, reason);
  }

  decide(): readonly SaveOutcome[] {
    this.isDecided = true;
    const { transfer, blocks } = this.job;
    return blocks.map(({ key }) => ({ transfer, key, result: this.#failures.get(key) ?? 'stored' }));
  }
}

const nothing: readonly never[] = [];
