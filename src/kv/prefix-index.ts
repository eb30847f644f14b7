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
  readonly #pageCount: number;
  readonly #bucketMask: number;
  readonly #buckets: Int32Array;
  readonly #next: Int32Array;
  readonly #previous: Int32Array;
  readonly #groups: Int32Array;
  readonly #digests: Uint32Array;
  #size = 0;

  constructor(pageCount: number) {
    this.#pageCount = pageCount;
    const bucketCount = 2 ** Math.ceil(Math.log2(Math.max(pageCount, 2) * 1.5));
    this.#bucketMask = bucketCount - 1;
    // Page 0 is nobody's, so 0 ends a chain and new arrays are ready as they are.
    this.#buckets = new Int32Array(bucketCount);
    this.#next = new Int32Array(pageCount);
    this.#previous = new Int32Array(pageCount);
    this.#groups = new Int32Array(pageCount).fill(ABSENT);
    this.#digests = new Uint32Array(pageCount * DIGEST_WORDS);
  }

  /** Pages in the index. */
  get size(): number {
    return this.#size;
  }

  has(page: BlockId): boolean {
    return this.#groups[page] !== ABSENT;
  }

  /** A page with this key, or NULL_BLOCK when there is none; of several, the one that was inserted first. */
  find(group: number, words: Uint32Array, block: number): BlockId {
    if (this.#size === 0) return NULL_BLOCK;
    const at = block * DIGEST_WORDS;
    let page = this.#buckets[this.#bucketOf(words, at, group)]!;
    while (page !== NULL_BLOCK && !this.#matches(page, group, words, at)) page = this.#next[page]!;
    return page as BlockId;
  }

  insert(page: BlockId, group: number, words: Uint32Array, block: number): void {
    if (page === NULL_BLOCK || page >= this.#pageCount) fail(`page ${page} cannot be indexed`);
    if (this.has(page)) fail(`page ${page} is in the index already`);
    const at = block * DIGEST_WORDS;
    const own = page * DIGEST_WORDS;
    for (let i = 0; i < DIGEST_WORDS; i++) this.#digests[own + i] = words[at + i]!;
    this.#groups[page] = group;
    const bucket = this.#bucketOf(words, at, group);
    let last = this.#buckets[bucket]!;
    if (last === NULL_BLOCK) this.#buckets[bucket] = page;
    else {
      while (this.#next[last] !== NULL_BLOCK) last = this.#next[last]!;
      this.#next[last] = page;
    }
    this.#previous[page] = last;
    this.#next[page] = NULL_BLOCK;
    this.#size++;
  }

  remove(page: BlockId): void {
    if (!this.has(page)) fail(`page ${page} is not in the index`);
    const next = this.#next[page]!;
    const previous = this.#previous[page]!;
    if (previous !== NULL_BLOCK) this.#next[previous] = next;
    else this.#buckets[this.#bucketOf(this.#digests, page * DIGEST_WORDS, this.#groups[page]!)] = next;
    if (next !== NULL_BLOCK) this.#previous[next] = previous;
    this.#groups[page] = ABSENT;
    this.#size--;
  }

  /** Every page hangs in the chain of its own digest, once. O(pages + buckets). */
  checkInvariants(): void {
    let reached = 0;
    for (let bucket = 0; bucket < this.#buckets.length; bucket++) {
      let previous = NULL_BLOCK as number;
      for (let page = this.#buckets[bucket]!; page !== NULL_BLOCK; page = this.#next[page]!) {
        if (this.#previous[page] !== previous) fail(`page ${page}: link back is broken`);
        const home = this.#bucketOf(this.#digests, page * DIGEST_WORDS, this.#groups[page]!);
        if (home !== bucket) fail(`page ${page} hangs in bucket ${bucket}, its digest says ${home}`);
        if (++reached > this.#size) fail('the chains are longer than the index');
        previous = page;
      }
    }
    if (reached !== this.#size) fail(`${reached} pages reached, size says ${this.#size}`);
  }

  /** The digest is uniform already; the group is stirred in by an odd factor. */
  #bucketOf(words: Uint32Array, at: number, group: number): number {
    return (words[at]! ^ Math.imul(group, 0x9e3779b1)) & this.#bucketMask;
  }

  #matches(page: number, group: number, words: Uint32Array, at: number): boolean {
    if (this.#groups[page] !== group) return false;
    const own = page * DIGEST_WORDS;
    for (let i = 0; i < DIGEST_WORDS; i++) if (this.#digests[own + i] !== words[at + i]) return false;
    return true;
  }
}

const ABSENT = -1;

/** For what is done for each page: the sentence is made only when it is needed. */
function fail(message: string): never {
  assert(false, message);
}
