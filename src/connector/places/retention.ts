import { assert } from '../../base/assert.ts';
import { type BlockIndex, blockIndex, type GroupIndex } from '../../core/ids.ts';
import type { BlockKey } from '../block-key.ts';
import type { KvBlock, KvIdentityGroup, WantedBlock } from '../connector.ts';

/**
 * Which blocks of windows and states are stored (vLLM's `prefix_cache_retention_interval`). A request that continues at a position
 * reads only the window, or the state, right before it. So a block is stored only if a later request may continue after it:
 *
 *   prompt     |------- shared prefix -------|---- own ----|-- output --|
 *   stored                               ####          ####         ####    and before each multiple of the interval
 *
 * The end of the shared prefix is known when a second request finds it in full attention. This request computes the windows and
 * states there again, and stores them for the third. Blocks of full attention are always stored.
 */
export class Retention {
  /** Undefined: every block of the group is stored. */
  readonly #readsBack: readonly (number | undefined)[];
  readonly #blockSizes: readonly number[];
  readonly #interval: number;
  /** Requests continue at multiples of all block sizes. */
  readonly #alignment: number;

  private constructor(groups: readonly KvIdentityGroup[], interval: number) {
    this.#readsBack = groups.map(({ readsBack }) => readsBack);
    this.#blockSizes = groups.map(({ blockSize }) => blockSize);
    this.#alignment = this.#blockSizes.reduce(leastCommonMultiple, 1);
    // A request can continue only at a multiple of the block sizes.
    this.#interval = Math.ceil(interval / this.#alignment) * this.#alignment;
  }

  /** Undefined: all blocks are stored. Without full attention, the end of a shared prefix is not known. `interval`: 0 = none. */
  static of(groups: readonly KvIdentityGroup[], interval: number | undefined): Retention | undefined {
    const isHybrid = new Set(groups.map(({ readsBack }) => readsBack === undefined)).size === 2;
    return interval === undefined || !isHybrid ? undefined : new Retention(groups, interval);
  }

  newRequest(promptTokens: number): RequestRetention {
    return new RequestRetention(this, promptTokens);
  }

  aligned(position: number): number {
    return position - (position % this.#alignment);
  }

  /** Whether all blocks of the group are stored. */
  keepsAll(group: GroupIndex): boolean {
    return this.#readsBack[group] === undefined;
  }

  endOf({ group, index }: KvBlock): number {
    return (index + 1) * this.#blockSizes[group]!;
  }

  /** Whether a request that continues at `position` reads the block. */
  isReadAt({ group, index }: KvBlock, position: number): boolean {
    const start = index * this.#blockSizes[group]!;
    return start < position && start + this.#blockSizes[group]! > position - this.#readsBack[group]!;
  }

  isReadAtInterval(block: KvBlock): boolean {
    if (this.#interval === 0) return false;
    const next = Math.ceil(this.endOf(block) / this.#interval) * this.#interval;
    return this.isReadAt(block, next);
  }

  /** No later position of a request that has computed `computed` tokens reads the block. */
  isPassed(block: KvBlock, computed: number): boolean {
    return this.endOf(block) <= this.aligned(computed) - this.#readsBack[block.group]!;
  }

  /** The first block of a full group that is missing. `wanted`: those that the pool lacks, of which `isFound` are in a tier. */
  firstMissing(wanted: readonly WantedBlock[], isFound: (key: BlockKey) => boolean): number {
    let first = Infinity;
    for (const { group, index, key } of wanted)
      if (this.keepsAll(group) && !isFound(key)) first = Math.min(first, index * this.#blockSizes[group]!);
    return first;
  }

  /** The blocks of a chunk have consecutive indices. */
  chunk(block: KvBlock, keys: readonly BlockKey[]): KvBlock[] {
    const first = block.index - (block.index % keys.length);
    return keys.map((key, at) => ({ group: block.group, index: blockIndex(first + at) as BlockIndex, key }));
  }
}

/** The positions at which requests may continue after tokens of one request. */
export class RequestRetention {
  readonly #retention: Retention;
  readonly #promptTokens: number;
  #sharedTokens = 0;
  /** The tokens whose blocks of full attention are valid. */
  #computed = 0;
  /** Blocks that were not stored, and that a request may read that continues after the newest tokens. */
  #newest: KvBlock[] = [];

  constructor(retention: Retention, promptTokens: number) {
    this.#retention = retention;
    this.#promptTokens = promptTokens;
  }

  /** Another request has computed the first `tokens` of the prompt, and not the token after them. */
  shares(tokens: number): void {
    assert(tokens >= 0, `${tokens} tokens are shared`);
    this.#sharedTokens = Math.min(tokens, this.#promptTokens);
  }

  /** Whether the block is stored now. The block is valid. */
  isStored(block: KvBlock): boolean {
    const retention = this.#retention;
    if (retention.keepsAll(block.group)) {
      this.#computed = Math.max(this.#computed, retention.endOf(block));
      return true;
    }
    // The same prompt again computes its last token, so it continues before it.
    const ends = [this.#promptTokens - 1, this.#promptTokens, this.#sharedTokens];
    if (retention.isReadAtInterval(block) || ends.some((end) => retention.isReadAt(block, retention.aligned(end))))
      return true;
    this.#newest.push(block);
    if (this.#newest.length % 64 === 0)
      this.#newest = this.#newest.filter((other) => !retention.isPassed(other, this.#computed));
    return false;
  }

  /** The request has ended: the blocks that its next turn reads. */
  takeLast(): KvBlock[] {
    const end = this.#retention.aligned(this.#computed);
    return this.#newest.splice(0).filter((block) => this.#retention.isReadAt(block, end));
  }
}

function leastCommonMultiple(a: number, b: number): number {
  let [x, y] = [a, b];
  while (y > 0) [x, y] = [y, x % y];
  return (a / x) * b;
}
