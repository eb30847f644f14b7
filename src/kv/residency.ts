import { assert } from '../base/assert.ts';
import type { BlockId } from '../core/ids.ts';

/**
 * What is in each page, and who fills it. The state of a block follows from it, the same for all that share the page:
 *
 *   valid       all its tokens' KV is there
 *   computing   a request owns it and fills it token by token; the tokens so far may be read already
 *
 * (A block without a page is absent.) A page has at most one owner, and only its owner's rows are written to it. `validTo` moves when a step's result is
 * applied, `plannedTo` when the step is planned: rows later in the same step may read up to it.
 */
export class Residency {
  /** The page's first so many tokens hold KV that was computed or verified (I1); for a state: it is the one after so many. */
  readonly validTo: Int32Array;
  readonly plannedTo: Int32Array;
  /** Slot of the request that fills the page, plus one; 0 = nobody does. */
  readonly #owners: Int32Array;

  constructor(pageCount: number) {
    this.validTo = new Int32Array(pageCount);
    this.plannedTo = new Int32Array(pageCount);
    this.#owners = new Int32Array(pageCount);
  }

  isOwned(page: BlockId): boolean {
    return this.#owners[page] !== 0;
  }

  isOwnedBy(page: BlockId, slot: number): boolean {
    return this.#owners[page] === slot + 1;
  }

  /** A page whose content means nothing (any more) is to be filled by `slot`. */
  begin(page: BlockId, slot: number): void {
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
    assert(this.isOwnedBy(page, slot), `page ${page} is not owned by slot ${slot}`);
    this.#owners[page] = 0;
  }

  /** The owner is gone; another of the page's users goes on where it stopped. */
  bequeath(page: BlockId, slot: number, heir: number): void {
    assert(this.plannedTo[page] === this.validTo[page], `page ${page} changes owners within a step`);
    this.disown(page, slot);
    this.#owners[page] = heir + 1;
  }
}
