import { assert, assertDefined } from '../base/assert.ts';
import { IntrusiveList } from '../base/intrusive-list.ts';
import { type BlockId, NULL_BLOCK } from '../core/ids.ts';
import type { PrefixIndex } from './prefix-index.ts';

/**
 * Who holds which page of the device pool. A page is in one of these states (I7: they add up to all pages):
 *
 *   referenced   some block table holds it, or a transfer reads or writes it (I5)
 *   cached       nobody holds it, but its content is published: a later request may revive it
 *   free         nobody holds it and its content means nothing
 *
 * Cached and free pages wait in one list in the order of eviction: free ones first, then cached ones by the age of
 * their release. A cached page loses its content only when it is handed out for something else.
 */
export class BlockPool {
  readonly pageCount: number;
  readonly #index: PrefixIndex;
  readonly #references: Int32Array;
  readonly #holds: Int32Array;
  readonly #idle: IntrusiveList;
  #cachedIdle = 0;

  constructor(pageCount: number, index: PrefixIndex) {
    assert(Number.isInteger(pageCount) && pageCount >= 2, `a pool of ${pageCount} pages has none to hand out`);
    this.pageCount = pageCount;
    this.#index = index;
    this.#references = new Int32Array(pageCount);
    this.#holds = new Int32Array(pageCount);
    this.#idle = new IntrusiveList(pageCount);
    for (let page = NULL_BLOCK + 1; page < pageCount; page++) this.#idle.pushBack(page);
  }

  /** Pages that `allocate` can hand out now: free and cached ones. */
  get available(): number {
    return this.#idle.size;
  }

  /** Available pages that still carry published content. */
  get cached(): number {
    return this.#cachedIdle;
  }

  references(page: BlockId): number {
    return this.#references[page]!;
  }

  isAvailable(page: BlockId): boolean {
    return this.#idle.has(page);
  }

  holds(page: BlockId): number {
    return this.#holds[page]!;
  }

  isHeld(page: BlockId): boolean {
    return this.#holds[page]! > 0;
  }

  /** Hands out the page that is missed least, with one reference, and forgets what it held. */
  allocate(): BlockId {
    const page = assertDefined(this.#idle.first(), 'no page is available: ask `available` first') as BlockId;
    this.#takeFromIdle(page);
    if (this.#index.has(page)) this.#index.remove(page);
    if (this.#holds[page] !== 0 || this.#references[page] !== 0) fail(`page ${page} is in use`);
    this.#references[page] = 1;
    return page;
  }

  /** One more table holds the page; a cached page comes back to life. */
  reference(page: BlockId): void {
    assert(page !== NULL_BLOCK, 'the null page is not counted');
    if (this.#idle.has(page)) {
      if (!this.#index.has(page)) fail(`page ${page} is free: nothing to refer to`);
      this.#takeFromIdle(page);
    }
    this.#references[page]!++;
  }

  /** One table less. Call it from a request's last block to its first, so that of its blocks the prefix survives longest. */
  release(page: BlockId): void {
    if (this.#references[page]! <= 0) fail(`page ${page} has no reference to release`);
    this.#references[page]!--;
    this.#idleIfUnused(page);
  }

  /** A transfer begins to read or write the page: until `unhold` it is not handed out, whoever lets go of it (I5). */
  hold(page: BlockId): void {
    assert(page !== NULL_BLOCK, 'the null page takes no transfers');
    if (this.#idle.has(page)) this.#takeFromIdle(page);
    this.#holds[page]!++;
  }

  /** The transfer has really ended. */
  unhold(page: BlockId): void {
    if (this.#holds[page]! <= 0) fail(`page ${page} is not held`);
    this.#holds[page]!--;
    this.#idleIfUnused(page);
  }

  /** Strikes the page's content from the index: it cannot be found any more, whoever still holds it. */
  unpublish(page: BlockId): void {
    const wasIdle = this.#idle.has(page);
    if (wasIdle) this.#takeFromIdle(page);
    this.#index.remove(page);
    if (wasIdle) this.#pushIdle(page);
  }

  /** I7, as far as the pool alone can tell. O(pages). */
  checkInvariants(): void {
    this.#idle.checkInvariants();
    let cached = 0;
    let idle = 0;
    for (let page = NULL_BLOCK + 1; page < this.pageCount; page++) {
      const references = this.#references[page]!;
      const holds = this.#holds[page]!;
      if (references < 0 || holds < 0) fail(`page ${page}: negative counts`);
      const isIdle = this.#idle.has(page);
      if (isIdle !== (references === 0 && holds === 0))
        fail(`page ${page}: idle ${isIdle}, ${references}+${holds} users`);
      if (isIdle) idle++;
      if (isIdle && this.#index.has(page as BlockId)) cached++;
    }
    assert(this.#references[NULL_BLOCK] === 0 && !this.#idle.has(NULL_BLOCK), 'the null page is nobody’s');
    if (idle !== this.#idle.size) fail(`${idle} idle pages, the list has ${this.#idle.size}`);
    if (cached !== this.#cachedIdle) fail(`${cached} cached pages, the counter says ${this.#cachedIdle}`);
  }

  #idleIfUnused(page: BlockId): void {
    if (this.#references[page] !== 0 || this.#holds[page] !== 0) return;
    if (this.#index.has(page)) this.#cachedIdle++;
    this.#pushIdle(page);
  }

  #pushIdle(page: BlockId): void {
    if (this.#index.has(page)) this.#idle.pushBack(page);
    else this.#idle.pushFront(page);
  }

  #takeFromIdle(page: BlockId): void {
    this.#idle.remove(page);
    if (this.#index.has(page)) this.#cachedIdle--;
  }
}

/** For what is done for each page: the sentence is made only when it is needed. */
function fail(message: string): never {
  assert(false, message);
}
