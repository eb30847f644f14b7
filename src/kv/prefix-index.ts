import { assert } from '../base/assert.ts';
import { type BlockId, NULL_BLOCK } from '../core/ids.ts';
import { DIGEST_WORDS } from './block-hash.ts';

/**
 * From a block's key (digest and group) to the pages that hold it. Several pages may hold one key: two requests may
 * have computed the same block before either was published, and no page moves once a table points at it.
 *
 * A chained hash table whose nodes are the pages themselves: digests, links and buckets lie in typed arrays sized at
 * the start, so that a lookup touches no garbage-collected memory and a publication allocates nothing.
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

  constructor(blockCount: number) {
    this.#blockCount = blockCount;
    const bucketCount = 2 ** Math.ceil(Math.log2(Math.max(blockCount, 2) * 1.5));
    this.#bucketMask = bucketCount - 1;
    // Page 0 is nobody's, so 0 ends a chain and new arrays are ready as they are.
    this.#buckets = new Int32Array(bucketCount);
    this.#next = new Int32Array(blockCount);
    this.#previous = new Int32Array(blockCount);
    this.#groups = new Int32Array(blockCount).fill(ABSENT);
    this.#digests = new Uint32Array(blockCount * DIGEST_WORDS);
  }

  /** Pages in the index. */
  get size(): number {
    return this.#size;
  }

  has(block: BlockId): boolean {
    return this.#groups[block] !== ABSENT;
  }

  /** A page with this key, or NULL_BLOCK when there is none; of several, the one that was inserted first. */
  find(group: number, words: Uint32Array, index: number): BlockId {
    if (this.#size === 0) return NULL_BLOCK;
    const at = index * DIGEST_WORDS;
    let block = this.#buckets[this.#bucketOf(words, at, group)]!;
    while (block !== NULL_BLOCK && !this.#matches(block, group, words, at)) block = this.#next[block]!;
    return block as BlockId;
  }

  insert(block: BlockId, group: number, words: Uint32Array, index: number): void {
    if (block === NULL_BLOCK || block >= this.#blockCount) fail(`page ${block} cannot be indexed`);
    if (this.has(block)) fail(`page ${block} is in the index already`);
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
    if (!this.has(block)) fail(`page ${block} is not in the index`);
    const next = this.#next[block]!;
    const previous = this.#previous[block]!;
    if (previous !== NULL_BLOCK) this.#next[previous] = next;
    else this.#buckets[this.#bucketOf(this.#digests, block * DIGEST_WORDS, this.#groups[block]!)] = next;
    if (next !== NULL_BLOCK) this.#previous[next] = previous;
    this.#groups[block] = ABSENT;
    this.#size--;
  }

  /** Every page hangs in the chain of its own digest, once. O(pages + buckets). */
  checkInvariants(): void {
    let reached = 0;
    for (let bucket = 0; bucket < this.#buckets.length; bucket++) {
      let previous = NULL_BLOCK as number;
      for (let block = this.#buckets[bucket]!; block !== NULL_BLOCK; block = this.#next[block]!) {
        if (this.#previous[block] !== previous) fail(`page ${block}: link back is broken`);
        const home = this.#bucketOf(this.#digests, block * DIGEST_WORDS, this.#groups[block]!);
        if (home !== bucket) fail(`page ${block} hangs in bucket ${bucket}, its digest says ${home}`);
        if (++reached > this.#size) fail('the chains are longer than the index');
        previous = block;
      }
    }
    if (reached !== this.#size) fail(`${reached} pages reached, size says ${this.#size}`);
  }

  /** The digest is uniform already; the group is stirred in by an odd factor. */
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

/** For what is done for each page: the sentence is made only when it is needed. */
function fail(message: string): never {
  assert(false, message);
}
