import { assert } from '../base/assert.ts';
import type { BlockId } from '../core/ids.ts';

/**
 * What is in each page, and who fills it. The state of a block follows from it, the same for all that share the page:
 *
 *   valid       all its tokens' KV is there
 *   computing   a request owns it and fills it token by token; the tokens so far may be read already
 *   loading     a request owns it and a transfer fills it; nobody writes rows to it, nobody reads it before it is verified
 *
 * (A block without a page is absent.) A page has at most one owner, and only its owner's rows are written to it. `validTo` moves when a step's result is
 * applied, `plannedTo` when the step is planned: rows later in the same step may read up to it.
 */
export class Residency {
  /** The page's first so many tokens hold KV that was computed or verified (I1); for a state: it is the one after so many. */
  readonly validTokens: Int32Array;
  readonly scheduledTokens: Int32Array;
  /** 1 while a transfer that somebody waits for fills the page. */
  readonly #loading: Uint8Array;
  /** Slot of the request that fills the page, plus one; 0 = nobody does. */
  readonly #owners: Int32Array;

  constructor(blockCount: number) {
    this.validTokens = new Int32Array(blockCount);
    this.scheduledTokens = new Int32Array(blockCount);
    this.#loading = new Uint8Array(blockCount);
    this.#owners = new Int32Array(blockCount);
  }

  isOwned(block: BlockId): boolean {
    return this.#owners[block] !== 0;
  }

  isOwnedBy(block: BlockId, slot: number): boolean {
    return this.#owners[block] === slot + 1;
  }

  isLoading(block: BlockId): boolean {
    return this.#loading[block] === 1;
  }

  /** Whether rows of `slot` may write to the page. */
  isFilledBy(block: BlockId, slot: number): boolean {
    return this.#owners[block] === slot + 1 && this.#loading[block] === 0;
  }

  /** The slot that fills the page or has it loaded. */
  ownerOf(block: BlockId): number | undefined {
    const owner = this.#owners[block]!;
    return owner === 0 ? undefined : owner - 1;
  }

  /**
   * A transfer is to fill the page for its owner. Within this step (`whole` is the block size) rows may count on it, and
   * are thrown away when it fails; or later (0), and rows that read it wait.
   */
  startLoading(block: BlockId, whole: number): void {
    if (!this.isOwned(block) || this.validTokens[block] !== 0) fail(block, 'cannot be loaded');
    this.#loading[block] = 1;
    this.scheduledTokens[block] = whole;
  }

  /** The transfer has filled all of the page, and what it brought was verified (I1). */
  loadArrived(block: BlockId, whole: number): void {
    if (!this.isLoading(block)) fail(block, 'is not waited for');
    this.#loading[block] = 0;
    this.validTokens[block] = whole;
    this.scheduledTokens[block] = whole;
  }

  /** Nobody waits for the transfer any more, or it has failed. */
  stopLoading(block: BlockId): void {
    this.#loading[block] = 0;
    this.empty(block);
  }

  /** A page whose content means nothing (any more) is to be filled by `slot`. */
  assignOwner(block: BlockId, slot: number): void {
    if (this.isLoading(block)) fail(block, 'is being loaded');
    this.empty(block);
    this.#owners[block] = slot + 1;
  }

  /** The content is lost or wrong. */
  empty(block: BlockId): void {
    this.validTokens[block] = 0;
    this.scheduledTokens[block] = 0;
  }

  /**
   * What was planned has been computed; of it, tokens from `below` on do not count. That holds for tokens which had been
   * valid before, too: the rows (which another group needed) have overwritten them.
   */
  commitBelow(block: BlockId, below: number): void {
    this.validTokens[block] = Math.min(this.scheduledTokens[block]!, below);
    this.scheduledTokens[block] = this.validTokens[block]!;
  }

  /** As `commitBelow` for a running state: when it has moved on past the last row that counts, it cannot be had back. */
  commitState(block: BlockId, below: number): void {
    if (below < this.scheduledTokens[block]!) this.empty(block);
    else this.validTokens[block] = this.scheduledTokens[block]!;
  }

  /** The owner is done or gone: nobody writes to the page any more. */
  clearOwner(block: BlockId, slot: number): void {
    if (!this.isOwnedBy(block, slot)) fail(block, `is not owned by slot ${slot}`);
    this.#owners[block] = 0;
  }

  /** The owner is gone; another of the page's users goes on where it stopped. */
  transferOwnership(block: BlockId, slot: number, newOwner: number): void {
    if (!this.isLoading(block) && this.scheduledTokens[block] !== this.validTokens[block])
      fail(block, 'changes owners within a step');
    this.clearOwner(block, slot);
    this.#owners[block] = newOwner + 1;
  }
}

/** For what is done for each page: the sentence is made only when it is needed. */
function fail(block: BlockId, what: string): never {
  assert(false, `page ${block} ${what}`);
}
