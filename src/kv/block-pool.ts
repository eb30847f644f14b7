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
 * Blocks that the pool can allocate are in four lists. It allocates from the first list that is not empty:
 *
 *   free        free blocks
 *   cached      cached blocks in the order of their release
 *   wanted      cached blocks that were at the front of the list before, but waiting requests will look for them (`wanted-content.ts`)
 *   protected   cached blocks of pinned prefixes (`pinned-prefixes.ts`)
 *
 * A cached block is evicted when the pool allocates it, or when its KV is invalid.
 */
export class BlockPool {
  readonly blockCount: number;
  readonly #index: PrefixIndex;
  readonly #references: Int32Array;
  readonly #pinCount: Int32Array;
  readonly #free: IntrusiveList;
  readonly #cached: IntrusiveList;
  readonly #wanted: IntrusiveList;
  readonly #protected: IntrusiveList;
  #protectedEvictions = 0;
  /** Whether a request without blocks will look for the content of a cached block. If no longer, `notWanted` follows. */
  isWanted: ((block: BlockId) => boolean) | undefined;
  /** Whether a cached block is evicted after all others. If the answer changes for a block, `sortCached` follows. */
  isProtected: ((block: BlockId) => boolean) | undefined;
  /** Called for each block that the pool allocates. */
  onAllocate: ((block: BlockId) => void) | undefined;

  constructor(blockCount: number, index: PrefixIndex) {
    assert(Number.isInteger(blockCount) && blockCount >= 2, `a pool of ${blockCount} blocks cannot allocate any`);
    this.blockCount = blockCount;
    this.#index = index;
    this.#references = new Int32Array(blockCount);
    this.#pinCount = new Int32Array(blockCount);
    this.#free = new IntrusiveList(blockCount);
    this.#cached = new IntrusiveList(blockCount);
    this.#wanted = new IntrusiveList(blockCount);
    this.#protected = new IntrusiveList(blockCount);
    for (let block = NULL_BLOCK + 1; block < blockCount; block++) this.#free.pushBack(block);
  }

  /** Blocks that `allocate` can return now: free and cached blocks. */
  get available(): number {
    return this.#free.size + this.cached;
  }

  /** Cached blocks that are kept for waiting requests. */
  get wantedCount(): number {
    return this.#wanted.size;
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
    return this.#cached.size + this.#wanted.size + this.#protected.size;
  }

  references(block: BlockId): number {
    return this.#references[block]!;
  }

  isAvailable(block: BlockId): boolean {
    return this.#listWith(block) !== undefined;
  }

  pinCount(block: BlockId): number {
    return this.#pinCount[block]!;
  }

  isPinned(block: BlockId): boolean {
    return this.#pinCount[block]! > 0;
  }

  /** Allocates the first block of the lists with one reference, and evicts its cached content. */
  allocate(): BlockId {
    const first = this.#free.first() ?? this.#firstUnwanted() ?? this.#wanted.first() ?? this.#protected.first();
    const block = assertDefined(first, 'no block is available: check `available` first') as BlockId;
    if (this.#protected.size > 0 && this.available === this.#protected.size) this.#protectedEvictions++;
    this.#takeIfAvailable(block);
    if (this.#index.has(block)) this.#index.remove(block);
    if (this.#pinCount[block] !== 0 || this.#references[block] !== 0) fail(`block ${block} is in use`);
    this.#references[block] = 1;
    this.onAllocate?.(block);
    return block;
  }

  /** One more block table has the block. The block must be referenced, pinned or cached. */
  reference(block: BlockId): void {
    assert(block !== NULL_BLOCK, 'the null block has no references');
    if (this.#free.has(block)) fail(`block ${block} is free, so it has no content to share`);
    this.#takeIfAvailable(block);
    this.#references[block]!++;
  }

  /** Removes one reference. Release a request's last block first, so its prefix stays cached longest. */
  release(block: BlockId): void {
    if (this.#references[block]! <= 0) fail(`block ${block} has no reference to release`);
    this.#references[block]!--;
    this.#availableIfUnused(block);
  }

  /** A transfer is about to read or write the block. The pool does not allocate the block before `unpin` (I5). */
  pin(block: BlockId): void {
    assert(block !== NULL_BLOCK, 'the null block has no transfers');
    this.#takeIfAvailable(block);
    this.#pinCount[block]!++;
  }

  /** The transfer is drained: no I/O touches the block any more. */
  unpin(block: BlockId): void {
    if (this.#pinCount[block]! <= 0) fail(`block ${block} is not pinned`);
    this.#pinCount[block]!--;
    this.#availableIfUnused(block);
  }

  /** Removes the block from the prefix cache. References and pins stay. */
  evict(block: BlockId): void {
    const wasAvailable = this.#takeIfAvailable(block);
    this.#index.remove(block);
    if (wasAvailable) this.#free.pushFront(block);
  }

  /** No request wants the block any more. Of several blocks, that which was released last is first. */
  notWanted(block: BlockId): void {
    if (!this.#wanted.has(block)) return;
    this.#wanted.remove(block);
    this.#cached.pushFront(block);
  }

  /** Moves the cached blocks to the list that `isProtected` says. O(available blocks). */
  sortCached(): void {
    for (const list of [this.#protected, this.#wanted, this.#cached])
      for (let at = list.first(), next: number | undefined; at !== undefined; at = next) {
        next = list.after(at);
        const right = this.#listOf(at as BlockId);
        if ((right === this.#protected) === (list === this.#protected)) continue;
        list.remove(at);
        right.pushBack(at);
      }
  }

  /** Checks the part of I7 that needs only the pool. O(blocks). */
  checkInvariants(): void {
    for (const list of this.#lists()) list.checkInvariants();
    let available = 0;
    for (let block = NULL_BLOCK + 1; block < this.blockCount; block++) {
      const references = this.#references[block]!;
      const pinCount = this.#pinCount[block]!;
      if (references < 0 || pinCount < 0) fail(`block ${block} has negative counts`);
      const list = this.#listWith(block as BlockId);
      if ((list !== undefined) !== (references === 0 && pinCount === 0))
        fail(
          `block ${block} has ${references} references and ${pinCount} pins, but is in a list: ${list !== undefined}`,
        );
      if (list === undefined) continue;
      available++;
      const right = this.#listOf(block as BlockId);
      if (list !== right && (list !== this.#wanted || right !== this.#cached))
        fail(`block ${block} is in the wrong list`);
    }
    assert(this.#references[NULL_BLOCK] === 0 && !this.isAvailable(NULL_BLOCK), 'the null block is referenced or idle');
    if (available !== this.available) fail(`${available} blocks are available, but the lists have ${this.available}`);
  }

  #availableIfUnused(block: BlockId): void {
    if (this.#references[block] !== 0 || this.#pinCount[block] !== 0) return;
    const list = this.#listOf(block);
    if (list === this.#free) list.pushFront(block);
    else list.pushBack(block);
  }

  /** Where an available block is. It moves from the cached to the wanted blocks when it is the next to be evicted. */
  #listOf(block: BlockId): IntrusiveList {
    if (!this.#index.has(block)) return this.#free;
    return this.isProtected?.(block) === true ? this.#protected : this.#cached;
  }

  #lists(): readonly IntrusiveList[] {
    return [this.#free, this.#cached, this.#wanted, this.#protected];
  }

  #listWith(block: BlockId): IntrusiveList | undefined {
    if (this.#cached.has(block)) return this.#cached;
    if (this.#free.has(block)) return this.#free;
    if (this.#wanted.has(block)) return this.#wanted;
    return this.#protected.has(block) ? this.#protected : undefined;
  }

  /** The first cached block that no waiting request wants. Moves the wanted blocks before it: each at most once. */
  #firstUnwanted(): number | undefined {
    let first = this.#cached.first();
    for (; first !== undefined && this.isWanted?.(first as BlockId) === true; first = this.#cached.first()) {
      this.#cached.remove(first);
      this.#wanted.pushBack(first);
    }
    return first;
  }

  /** Returns whether it was available. */
  #takeIfAvailable(block: BlockId): boolean {
    const list = this.#listWith(block);
    list?.remove(block);
    return list !== undefined;
  }
}

/** For checks of each block: the message is built only if the check fails. */
function fail(message: string): never {
  assert(false, message);
}
