import { assert } from '../base/assert.ts';
import { type BlockId, type BlockIndex, type GroupIndex, NULL_BLOCK } from '../core/ids.ts';
import { DIGEST_WORDS } from './block-hash.ts';

/**
 * An index from a key (digest and group) to the blocks with this content. Several blocks may have one key, because two
 * requests may compute the same tokens at the same time, and block tables do not change then.
 *
 * A chained hash table whose nodes are the blocks. Digests, links and buckets are in typed arrays of fixed size, so
 * neither a lookup nor an insertion allocates memory.
 */
export class PrefixIndex {
  readonly #blockCount: number;
  readonly #bucketMask: number;
  readonly #buckets: Int32Array;
  readonly #next: Int32Array;
  readonly #previous: Int32Array;
  readonly #groups: Int32Array;
  readonly #digests: Uint32Array;
  #size = 0;
  /** Called before a block is removed. */
  onRemove: ((block: BlockId) => void) | undefined;

  constructor(blockCount: number) {
    this.#blockCount = blockCount;
    const bucketCount = 2 ** Math.ceil(Math.log2(Math.max(blockCount, 2) * 1.5));
    this.#bucketMask = bucketCount - 1;
    // Block 0 is the null block, so 0 ends a chain, and zero-filled arrays are empty chains.
    this.#buckets = new Int32Array(bucketCount);
    this.#next = new Int32Array(blockCount);
    this.#previous = new Int32Array(blockCount);
    this.#groups = new Int32Array(blockCount).fill(ABSENT);
    this.#digests = new Uint32Array(blockCount * DIGEST_WORDS);
  }

  /** Blocks in the index. */
  get size(): number {
    return this.#size;
  }

  has(block: BlockId): boolean {
    return this.#groups[block] !== ABSENT;
  }

  /** The group of the block's key; undefined if the block is not in the index. */
  groupOf(block: BlockId): GroupIndex | undefined {
    const group = this.#groups[block]!;
    return group === ABSENT ? undefined : (group as GroupIndex);
  }

  /** The digest of a block in the index. A view, valid until the block is removed. */
  digestOf(block: BlockId): Uint32Array {
    return this.#digests.subarray(block * DIGEST_WORDS, (block + 1) * DIGEST_WORDS);
  }

  /** A word of the digest of a block in the index, without a view. */
  wordOf(block: BlockId): number {
    return this.#digests[block * DIGEST_WORDS]!;
  }

  /** Whether another block has the key of this block, which is in the index. */
  hasTwin(block: BlockId): boolean {
    const group = this.#groups[block]!;
    const at = block * DIGEST_WORDS;
    let other = this.#buckets[this.#bucketOf(this.#digests, at, group)]!;
    while (other !== NULL_BLOCK && (other === block || !this.#matches(other, group, this.#digests, at)))
      other = this.#next[other]!;
    return other !== NULL_BLOCK;
  }

  /** The block with this key that was inserted first, or NULL_BLOCK. */
  find(group: GroupIndex, words: Uint32Array, index: BlockIndex): BlockId {
    if (this.#size === 0) return NULL_BLOCK;
    const at = index * DIGEST_WORDS;
    let block = this.#buckets[this.#bucketOf(words, at, group)]!;
    while (block !== NULL_BLOCK && !this.#matches(block, group, words, at)) block = this.#next[block]!;
    return block as BlockId;
  }

  insert(block: BlockId, group: GroupIndex, words: Uint32Array, index: BlockIndex): void {
    if (block === NULL_BLOCK || block >= this.#blockCount) fail(`block ${block} cannot be in the index`);
    if (this.has(block)) fail(`block ${block} is in the index already`);
    const at = index * DIGEST_WORDS;
    const own = block * DIGEST_WORDS;
    for (let i = 0; i < DIGEST_WORDS; i++) this.#digests[own + i] = words[at + i]!;
    this.#groups[block] = group;
    const bucket = this.#bucketOf(words, at, group);
    let last = this.#buckets[bucket]!;
    if (last === NULL_BLOCK) this.#buckets[bucket] = block;
    else {
      while (this.#next[last] !== NULL_BLOCK) last = this.#next[last]!;
      this.#next[last] = block;
    }
    this.#previous[block] = last;
    this.#next[block] = NULL_BLOCK;
    this.#size++;
  }

  remove(block: BlockId): void {
    if (!this.has(block)) fail(`block ${block} is not in the index`);
    this.onRemove?.(block);
    const next = this.#next[block]!;
    const previous = this.#previous[block]!;
    if (previous !== NULL_BLOCK) this.#next[previous] = next;
    else this.#buckets[this.#bucketOf(this.#digests, block * DIGEST_WORDS, this.#groups[block]!)] = next;
    if (next !== NULL_BLOCK) this.#previous[next] = previous;
    this.#groups[block] = ABSENT;
    this.#size--;
  }

  /** Each block in the index is in the chain of its own key, once. O(blocks + buckets). */
  checkInvariants(): void {
    let reached = 0;
    for (let bucket = 0; bucket < this.#buckets.length; bucket++) {
      let previous = NULL_BLOCK as number;
      for (let block = this.#buckets[bucket]!; block !== NULL_BLOCK; block = this.#next[block]!) {
        if (this.#previous[block] !== previous) fail(`block ${block} has a wrong link to the block before`);
        const home = this.#bucketOf(this.#digests, block * DIGEST_WORDS, this.#groups[block]!);
        if (home !== bucket) fail(`block ${block} is in bucket ${bucket}, but its digest belongs to bucket ${home}`);
        if (++reached > this.#size) fail('the chains have more blocks than the index');
        previous = block;
      }
    }
    if (reached !== this.#size) fail(`the chains have ${reached} blocks, but the size is ${this.#size}`);
  }

  /** The words of a digest are uniform; an odd factor spreads the groups. */
  #bucketOf(words: Uint32Array, at: number, group: number): number {
    return (words[at]! ^ Math.imul(group, 0x9e3779b1)) & this.#bucketMask;
  }

  #matches(block: number, group: number, words: Uint32Array, at: number): boolean {
    if (this.#groups[block] !== group) return false;
    const own = block * DIGEST_WORDS;
    for (let i = 0; i < DIGEST_WORDS; i++) if (this.#digests[own + i] !== words[at + i]) return false;
    return true;
  }
}

const ABSENT = -1;

/** For checks of each block: the message is built only if the check fails. */
function fail(message: string): never {
  assert(false, message);
}
