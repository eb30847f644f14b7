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
  readonly blockCount: number;
  readonly #index: PrefixIndex;
  readonly #references: Int32Array;
  readonly #pinCount: Int32Array;
  readonly #idle: IntrusiveList;
  #cachedIdle = 0;

  constructor(blockCount: number, index: PrefixIndex) {
    assert(Number.isInteger(blockCount) && blockCount >= 2, `a pool of ${blockCount} pages has none to hand out`);
    this.blockCount = blockCount;
    this.#index = index;
    this.#references = new Int32Array(blockCount);
    this.#pinCount = new Int32Array(blockCount);
    this.#idle = new IntrusiveList(blockCount);
    for (let block = NULL_BLOCK + 1; block < blockCount; block++) this.#idle.pushBack(block);
  }

  /** Pages that `allocate` can hand out now: free and cached ones. */
  get available(): number {
    return this.#idle.size;
  }

  /** Available pages that still carry published content. */
  get cached(): number {
    return this.#cachedIdle;
  }

  references(block: BlockId): number {
    return this.#references[block]!;
  }

  isAvailable(block: BlockId): boolean {
    return this.#idle.has(block);
  }

  pinCount(block: BlockId): number {
    return this.#pinCount[block]!;
  }

  isPinned(block: BlockId): boolean {
    return this.#pinCount[block]! > 0;
  }

  /** Hands out the page that is missed least, with one reference, and forgets what it held. */
  allocate(): BlockId {
    const block = assertDefined(this.#idle.first(), 'no page is available: ask `available` first') as BlockId;
    this.#takeFromIdle(block);
    if (this.#index.has(block)) this.#index.remove(block);
    if (this.#pinCount[block] !== 0 || this.#references[block] !== 0) fail(`page ${block} is in use`);
    this.#references[block] = 1;
    return block;
  }

  /** One more table holds the page; a cached page comes back to life. */
  reference(block: BlockId): void {
    assert(block !== NULL_BLOCK, 'the null page is not counted');
    if (this.#idle.has(block)) {
      if (!this.#index.has(block)) fail(`page ${block} is free: nothing to refer to`);
      this.#takeFromIdle(block);
    }
    this.#references[block]!++;
  }

  /** One table less. Call it from a request's last block to its first, so that of its blocks the prefix survives longest. */
  release(block: BlockId): void {
    if (this.#references[block]! <= 0) fail(`page ${block} has no reference to release`);
    this.#references[block]!--;
    this.#idleIfUnused(block);
  }

  /** A transfer begins to read or write the page: until `unhold` it is not handed out, whoever lets go of it (I5). */
  pin(block: BlockId): void {
    assert(block !== NULL_BLOCK, 'the null page takes no transfers');
    if (this.#idle.has(block)) this.#takeFromIdle(block);
    this.#pinCount[block]!++;
  }

  /** The transfer has really ended. */
  unpin(block: BlockId): void {
    if (this.#pinCount[block]! <= 0) fail(`page ${block} is not held`);
    this.#pinCount[block]!--;
    this.#idleIfUnused(block);
  }

  /** Strikes the page's content from the index: it cannot be found any more, whoever still holds it. */
  evict(block: BlockId): void {
    const wasIdle = this.#idle.has(block);
    if (wasIdle) this.#takeFromIdle(block);
    this.#index.remove(block);
    if (wasIdle) this.#pushIdle(block);
  }

  /** I7, as far as the pool alone can tell. O(pages). */
  checkInvariants(): void {
    this.#idle.checkInvariants();
    let cached = 0;
    let idle = 0;
    for (let block = NULL_BLOCK + 1; block < this.blockCount; block++) {
      const references = this.#references[block]!;
      const pinCount = this.#pinCount[block]!;
      if (references < 0 || pinCount < 0) fail(`page ${block}: negative counts`);
      const isIdle = this.#idle.has(block);
      if (isIdle !== (references === 0 && pinCount === 0))
        fail(`page ${block}: idle ${isIdle}, ${references}+${pinCount} users`);
      if (isIdle) idle++;
      if (isIdle && this.#index.has(block as BlockId)) cached++;
    }
    assert(this.#references[NULL_BLOCK] === 0 && !this.#idle.has(NULL_BLOCK), 'the null page is nobody’s');
    if (idle !== this.#idle.size) fail(`${idle} idle pages, the list has ${this.#idle.size}`);
    if (cached !== this.#cachedIdle) fail(`${cached} cached pages, the counter says ${this.#cachedIdle}`);
  }

  #idleIfUnused(block: BlockId): void {
    if (this.#references[block] !== 0 || this.#pinCount[block] !== 0) return;
    if (this.#index.has(block)) this.#cachedIdle++;
    this.#pushIdle(block);
  }

  #pushIdle(block: BlockId): void {
    if (this.#index.has(block)) this.#idle.pushBack(block);
    else this.#idle.pushFront(block);
  }

  #takeFromIdle(block: BlockId): void {
    this.#idle.remove(block);
    if (this.#index.has(block)) this.#cachedIdle--;
  }
}

/** For what is done for each page: the sentence is made only when it is needed. */
function fail(message: string): never {
  assert(false, message);
}
