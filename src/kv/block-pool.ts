import { assert, assertDefined } from '../base/assert.ts';
import { IntrusiveList } from '../base/intrusive-list.ts';
import { type BlockId, NULL_BLOCK } from '../core/ids.ts';
import type { PrefixIndex } from './prefix-index.ts';

/**
 * The references and pins of each block in the pool. A block is in one of these states (I7: they add up to all blocks):
 *
 *   referenced   a block table has it, or a transfer or a step in flight has pinned it (I5)
 *   cached       it has no reference and no pin, but requests still find its content by its key
 *   free         it has no reference, no pin and no cached content
 *
 * Free and cached blocks are in one list, in the order of allocation: free blocks first, then cached blocks in the
 * order of their release. A cached block is evicted when the pool allocates it, or when its KV is invalid. Cached blocks of
 * pinned prefixes (`pinned-prefixes.ts`) are in a second list, which is allocated when the first is empty.
 */
export class BlockPool {
  readonly blockCount: number;
  readonly #index: PrefixIndex;
  readonly #references: Int32Array;
  readonly #pinCount: Int32Array;
  readonly #idle: IntrusiveList;
  readonly #protected: IntrusiveList;
  #cachedIdle = 0;
  #protectedEvictions = 0;
  /** Whether a cached block is evicted after all others. If the answer changes for a block, `sortIdle` follows. */
  isProtected: ((block: BlockId) => boolean) | undefined;
  /** Called for each block that the pool allocates. */
  onAllocate: ((block: BlockId) => void) | undefined;

  constructor(blockCount: number, index: PrefixIndex) {
    assert(Number.isInteger(blockCount) && blockCount >= 2, `a pool of ${blockCount} blocks cannot allocate any`);
    this.blockCount = blockCount;
    this.#index = index;
    this.#references = new Int32Array(blockCount);
    this.#pinCount = new Int32Array(blockCount);
    this.#idle = new IntrusiveList(blockCount);
    this.#protected = new IntrusiveList(blockCount);
    for (let block = NULL_BLOCK + 1; block < blockCount; block++) this.#idle.pushBack(block);
  }

  /** Blocks that `allocate` can return now: free and cached blocks. */
  get available(): number {
    return this.#idle.size + this.#protected.size;
  }

  /** Available blocks that are evicted last. */
  get protectedCount(): number {
    return this.#protected.size;
  }

  /** How often such a block was evicted, because no other block was available. */
  get protectedEvictions(): number {
    return this.#protectedEvictions;
  }

  /** Available blocks with cached content. */
  get cached(): number {
    return this.#cachedIdle;
  }

  references(block: BlockId): number {
    return this.#references[block]!;
  }

  isAvailable(block: BlockId): boolean {
    return this.#idle.has(block) || this.#protected.has(block);
  }

  pinCount(block: BlockId): number {
    return this.#pinCount[block]!;
  }

  isPinned(block: BlockId): boolean {
    return this.#pinCount[block]! > 0;
  }

  /** Allocates the first block of the list with one reference, and evicts its cached content. */
  allocate(): BlockId {
    const first = this.#idle.first() ?? this.#protected.first();
    const block = assertDefined(first, 'no block is available: check `available` first') as BlockId;
    if (this.#idle.size === 0) this.#protectedEvictions++;
    this.#takeFromIdle(block);
    if (this.#index.has(block)) this.#index.remove(block);
    if (this.#pinCount[block] !== 0 || this.#references[block] !== 0) fail(`block ${block} is in use`);
    this.#references[block] = 1;
    this.onAllocate?.(block);
    return block;
  }

  /** One more block table has the block. The block must be referenced, pinned or cached. */
  reference(block: BlockId): void {
    assert(block !== NULL_BLOCK, 'the null block has no references');
    if (this.isAvailable(block)) {
      if (!this.#index.has(block)) fail(`block ${block} is free, so it has no content to share`);
      this.#takeFromIdle(block);
    }
    this.#references[block]!++;
  }

  /** Removes one reference. Release a request's last block first, so its prefix stays cached longest. */
  release(block: BlockId): void {
    if (this.#references[block]! <= 0) fail(`block ${block} has no reference to release`);
    this.#references[block]!--;
    this.#idleIfUnused(block);
  }

  /** A transfer is about to read or write the block. The pool does not allocate the block before `unpin` (I5). */
  pin(block: BlockId): void {
    assert(block !== NULL_BLOCK, 'the null block has no transfers');
    if (this.isAvailable(block)) this.#takeFromIdle(block);
    this.#pinCount[block]!++;
  }

  /** The transfer is drained: no I/O touches the block any more. */
  unpin(block: BlockId): void {
    if (this.#pinCount[block]! <= 0) fail(`block ${block} is not pinned`);
    this.#pinCount[block]!--;
    this.#idleIfUnused(block);
  }

  /** Removes the block from the prefix cache. References and pins stay. */
  evict(block: BlockId): void {
    const wasIdle = this.isAvailable(block);
    if (wasIdle) this.#takeFromIdle(block);
    this.#index.remove(block);
    if (wasIdle) this.#pushIdle(block);
  }

  /** Moves the available blocks to the list that `isProtected` says. O(available blocks). */
  sortIdle(): void {
    for (const list of [this.#protected, this.#idle])
      for (let at = list.first(), next: number | undefined; at !== undefined; at = next) {
        next = list.after(at);
        const block = at as BlockId;
        if (this.#listOf(block) === list) continue;
        list.remove(block);
        this.#listOf(block).pushBack(block);
      }
  }

  /** Checks the part of I7 that needs only the pool. O(blocks). */
  checkInvariants(): void {
    this.#idle.checkInvariants();
    this.#protected.checkInvariants();
    let cached = 0;
    let idle = 0;
    for (let block = NULL_BLOCK + 1; block < this.blockCount; block++) {
      const references = this.#references[block]!;
      const pinCount = this.#pinCount[block]!;
      if (references < 0 || pinCount < 0) fail(`block ${block} has negative counts`);
      const isIdle = this.isAvailable(block as BlockId);
      if (isIdle && !this.#listOf(block as BlockId).has(block)) fail(`block ${block} is in the wrong list`);
      if (isIdle !== (references === 0 && pinCount === 0))
        fail(`block ${block} has ${references} references and ${pinCount} pins, but idle is ${isIdle}`);
      if (isIdle) idle++;
      if (isIdle && this.#index.has(block as BlockId)) cached++;
    }
    assert(this.#references[NULL_BLOCK] === 0 && !this.isAvailable(NULL_BLOCK), 'the null block is referenced or idle');
    if (idle !== this.available) fail(`${idle} blocks are idle, but the lists have ${this.available}`);
    if (cached !== this.#cachedIdle) fail(`${cached} idle blocks are cached, but the counter is ${this.#cachedIdle}`);
  }

  #idleIfUnused(block: BlockId): void {
    if (this.#references[block] !== 0 || this.#pinCount[block] !== 0) return;
    if (this.#index.has(block)) this.#cachedIdle++;
    this.#pushIdle(block);
  }

  #pushIdle(block: BlockId): void {
    if (this.#index.has(block)) this.#listOf(block).pushBack(block);
    else this.#idle.pushFront(block);
  }

  #listOf(block: BlockId): IntrusiveList {
    const isLast = this.#index.has(block) && this.isProtected?.(block) === true;
    return isLast ? this.#protected : this.#idle;
  }

  #takeFromIdle(block: BlockId): void {
    (this.#protected.has(block) ? this.#protected : this.#idle).remove(block);
    if (this.#index.has(block)) this.#cachedIdle--;
  }
}

/** For checks of each block: the message is built only if the check fails. */
function fail(message: string): never {
  assert(false, message);
}
