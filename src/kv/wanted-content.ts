import { assert } from '../base/assert.ts';
import { type BlockId, blockIndex, type GroupIndex, groupIndex, NULL_BLOCK } from '../core/ids.ts';
import { DIGEST_WORDS } from './block-hash.ts';
import type { BlockPool } from './block-pool.ts';
import type { KvRequest } from './kv-request.ts';
import type { PrefixIndex } from './prefix-index.ts';

/**
 * The content that requests without blocks will look up: those that wait for admission, new or preempted. The pool
 * evicts these blocks after other cached blocks. So a request that is admitted first takes no block that a later one
 * would hit, as long as the pool has others.
 *
 * It is only an order of eviction, so no request is admitted later. Requests are counted by a part of the key. If two
 * keys share a counter, a block is evicted later than necessary.
 */
export class WantedContent {
  readonly #isEnabled: boolean;
  readonly #pool: BlockPool;
  readonly #cached: PrefixIndex;
  /** By a part of the key: blocks of all tables that requests without blocks will have. */
  readonly #counts: Int32Array;
  /** The sum of all counters. */
  #total = 0;

  /** Not `isEnabled`: no request looks for blocks. */
  constructor(pool: BlockPool, cached: PrefixIndex, isEnabled: boolean) {
    this.#isEnabled = isEnabled;
    this.#pool = pool;
    this.#cached = cached;
    this.#counts = new Int32Array(Math.max(COUNTERS_MIN, 2 ** Math.ceil(Math.log2(pool.blockCount * 4))));
    pool.isWanted = (block) => {
      const group = cached.groupOf(block);
      return group !== undefined && this.#counts[this.#counterOf(group, cached.wordOf(block))]! > 0;
    };
  }

  /** The request has no blocks. Hashes its full blocks. O(blocks). */
  add({ chains, tokens }: KvRequest): void {
    if (!this.#isEnabled) return;
    for (let group = groupIndex(0); group < chains.length; group++) {
      chains[group]!.extend(tokens);
      const { count, words } = chains[group]!;
      for (let index = blockIndex(0); index < count; index++)
        this.#counts[this.#counterOf(group, words[index * DIGEST_WORDS]!)]!++;
      this.#total += count;
    }
  }

  /** The request gets blocks now or ends. Takes back `add`. O(blocks). */
  remove({ chains }: KvRequest): void {
    if (!this.#isEnabled) return;
    for (let group = groupIndex(0); group < chains.length; group++) {
      const { count, words } = chains[group]!;
      for (let index = blockIndex(0); index < count; index++) {
        const counter = this.#counterOf(group, words[index * DIGEST_WORDS]!);
        const left = --this.#counts[counter]!;
        if (left === 0 && this.#pool.wantedCount > 0) this.#notWanted(this.#cached.find(group, words, index));
      }
      this.#total -= count;
    }
  }

  /** Recounts the requests without blocks. */
  checkInvariants(requests: readonly (KvRequest | undefined)[]): void {
    let total = 0;
    for (const request of requests) {
      if (request === undefined || request.admitted || !this.#isEnabled) continue;
      for (let group = groupIndex(0); group < request.chains.length; group++) {
        const { count, words } = request.chains[group]!;
        total += count;
        for (let index = blockIndex(0); index < count; index++)
          if (this.#counts[this.#counterOf(group, words[index * DIGEST_WORDS]!)]! <= 0)
            assert(false, 'a waiting request wants nothing');
      }
    }
    if (total !== this.#total) assert(false, `requests want ${total} blocks, but the counters have ${this.#total}`);
  }

  #notWanted(block: BlockId): void {
    if (block !== NULL_BLOCK) this.#pool.notWanted(block);
  }

  /** The words of a digest are uniform; an odd factor spreads the groups. */
  #counterOf(group: GroupIndex, word: number): number {
    return (word ^ Math.imul(group, 0x9e3779b1)) & (this.#counts.length - 1);
  }
}

/** Small pools need many counters too, because their queues may be long. */
const COUNTERS_MIN = 2 ** 16;
