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
 * order of their release. A cached block is evicted when the pool allocates it, or when its KV is invalid.
 */
export class BlockPool {
  readonly blockCount: number;
  readonly #index: PrefixIndex;
  readonly #references: Int32Array;
  readonly #pinCount: Int32Array;
  readonly #idle: IntrusiveList;
  #cachedIdle = 0;
  /** Called for each block that the pool allocates. */
  onAllocate: ((block: BlockId) => void) | undefined;

  constructor(blockCount: number, index: PrefixIndex) {
    assert(Number.isInteger(blockCount) && blockCount >= 2, `a pool of ${blockCount} blocks cannot allocate any`);
    this.blockCount = blockCount;
    this.#index = index;
    this.#references = new Int32Array(blockCount);
    this.#pinCount = new Int32Array(blockCount);
    this.#idle = new IntrusiveList(blockCount);
    for (let block = NULL_BLOCK + 1; block < blockCount; block++) this.#idle.pushBack(block);
  }

  /** Blocks that `allocate` can return now: free and cached blocks. */
  get available(): number {
    return this.#idle.size;
  }

  /** Available blocks with cached content. */
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

  /** Allocates the first block of the list with one reference, and evicts its cached content. */
  allocate(): BlockId {
    const block = assertDefined(this.#idle.first(), 'no block is available: check `available` first') as BlockId;
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
    if (this.#idle.has(block)) {
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
    if (this.#idle.has(block)) this.#takeFromIdle(block);
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
    const wasIdle = this.#idle.has(block);
    if (wasIdle) this.#takeFromIdle(block);
    this.#index.remove(block);
    if (wasIdle) this.#pushIdle(block);
  }

  /** Checks the part of I7 that needs only the pool. O(blocks). */
  checkInvariants(): void {
    this.#idle.checkInvariants();
    let cached = 0;
    let idle = 0;
    for (let block = NULL_BLOCK + 1; block < this.blockCount; block++) {
      const references = this.#references[block]!;
      const pinCount = this.#pinCount[block]!;
      if (references < 0 || pinCount < 0) fail(`block ${block} has negative counts`);
      const isIdle = this.#idle.has(block);
      if (isIdle !== (references === 0 && pinCount === 0))
        fail(`block ${block} has ${references} references and ${pinCount} pins, but idle is ${isIdle}`);
      if (isIdle) idle++;
      if (isIdle && this.#index.has(block as BlockId)) cached++;
    }
    assert(this.#references[NULL_BLOCK] === 0 && !this.#idle.has(NULL_BLOCK), 'the null block is referenced or idle');
    if (idle !== this.#idle.size) fail(`${idle} blocks are idle, but the list has ${this.#idle.size}`);
    if (cached !== this.#cachedIdle) fail(`${cached} idle blocks are cached, but the counter is ${this.#cachedIdle}`);
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

/** For checks of each block: the message is built only if the check fails. */
function fail(message: string): never {
  assert(false, message);
}
