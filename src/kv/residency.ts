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
  readonly validTo: Int32Array;
  readonly plannedTo: Int32Array;
  /** 1 while a transfer that somebody waits for fills the page. */
  readonly #loading: Uint8Array;
  /** Slot of the request that fills the page, plus one; 0 = nobody does. */
  readonly #owners: Int32Array;

  constructor(pageCount: number) {
    this.validTo = new Int32Array(pageCount);
    this.plannedTo = new Int32Array(pageCount);
    this.#loading = new Uint8Array(pageCount);
    this.#owners = new Int32Array(pageCount);
  }

  isOwned(page: BlockId): boolean {
    return this.#owners[page] !== 0;
  }

  isOwnedBy(page: BlockId, slot: number): boolean {
    return this.#owners[page] === slot + 1;
  }

  isLoading(page: BlockId): boolean {
    return this.#loading[page] === 1;
  }

  /** Whether rows of `slot` may write to the page. */
  isFilledBy(page: BlockId, slot: number): boolean {
    return this.#owners[page] === slot + 1 && this.#loading[page] === 0;
  }

  /** The slot that fills the page or has it loaded. */
  ownerOf(page: BlockId): number | undefined {
    const owner = this.#owners[page]!;
    return owner === 0 ? undefined : owner - 1;
  }

  /**
   * A transfer is to fill the page for its owner. Within this step (`whole` is the block size) rows may count on it, and
   * are thrown away when it fails; or later (0), and rows that read it wait.
   */
  startLoading(page: BlockId, whole: number): void {
    if (!this.isOwned(page) || this.validTo[page] !== 0) fail(page, 'cannot be loaded');
    this.#loading[page] = 1;
    this.plannedTo[page] = whole;
  }

  /** The transfer has filled all of the page, and what it brought was verified (I1). */
  loadArrived(page: BlockId, whole: number): void {
    if (!this.isLoading(page)) fail(page, 'is not waited for');
    this.#loading[page] = 0;
    this.validTo[page] = whole;
    this.plannedTo[page] = whole;
  }

  /** Nobody waits for the transfer any more, or it has failed. */
  stopLoading(page: BlockId): void {
    this.#loading[page] = 0;
    this.empty(page);
  }

  /** A page whose content means nothing (any more) is to be filled by `slot`. */
  begin(page: BlockId, slot: number): void {
    if (this.isLoading(page)) fail(page, 'is being loaded');
    this.empty(page);
    this.#owners[page] = slot + 1;
  }

  /** The content is lost or wrong. */
  empty(page: BlockId): void {
    this.validTo[page] = 0;
    this.plannedTo[page] = 0;
  }

  /**
   * What was planned has been computed; of it, tokens from `below` on do not count. That holds for tokens which had been
   * valid before, too: the rows (which another group needed) have overwritten them.
   */
  commitBelow(page: BlockId, below: number): void {
    this.validTo[page] = Math.min(this.plannedTo[page]!, below);
    this.plannedTo[page] = this.validTo[page]!;
  }

  /** As `commitBelow` for a running state: when it has moved on past the last row that counts, it cannot be had back. */
  commitState(page: BlockId, below: number): void {
    if (below < this.plannedTo[page]!) this.empty(page);
    else this.validTo[page] = this.plannedTo[page]!;
  }

  /** The owner is done or gone: nobody writes to the page any more. */
  disown(page: BlockId, slot: number): void {
    if (!this.isOwnedBy(page, slot)) fail(page, `is not owned by slot ${slot}`);
    this.#owners[page] = 0;
  }

  /** The owner is gone; another of the page's users goes on where it stopped. */
  bequeath(page: BlockId, slot: number, heir: number): void {
    if (!this.isLoading(page) && this.plannedTo[page] !== this.validTo[page])
      fail(page, 'changes owners within a step');
    this.disown(page, slot);
    this.#owners[page] = heir + 1;
  }
}

/** For what is done for each page: the sentence is made only when it is needed. */
function fail(page: BlockId, what: string): never {
  assert(false, `page ${page} ${what}`);
}
