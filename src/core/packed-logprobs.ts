import { assert } from '../base/assert.ts';
import { type TokenId, tokenId } from './ids.ts';
import type { TokenLogprobs } from './step.ts';

/** Logprobs of tokens, one after the other. An array is such a list. */
export interface LogprobList extends Iterable<TokenLogprobs> {
  readonly length: number;
}

/** Entries of the first block; the block grows to its full size. */
const ENTRIES_FIRST = 8;
/** Slots of a block, for its entries and their top tokens. */
const SLOTS_PER_BLOCK = 4096;
/** In place of a top token that an entry does not have. */
const NO_TOKEN = -1;

/** Memory of one entry with this many top tokens. */
export const packedBytes = (topCount: number): number => 12 * (1 + topCount);

/**
 * The same values as an array of `TokenLogprobs`, in a fifth of its memory: an object for each top token would need 50 bytes. Each
 * entry has a slot for itself and one for each top token, in two typed arrays:
 *
 *     numbers (F64)   logprob   logprob of the best   of the second ...
 *     tokens  (I32)   rank      the best token        the second    ...   or NO_TOKEN
 */
export class PackedLogprobs implements LogprobList {
  readonly #stride: number;
  readonly #entriesPerBlock: number;
  readonly #blocks: { numbers: Float64Array; tokens: Int32Array }[] = [];
  #length = 0;

  /** @param topCount the largest number of top tokens of an entry */
  constructor(topCount: number) {
    this.#stride = 1 + topCount;
    this.#entriesPerBlock = Math.floor(SLOTS_PER_BLOCK / this.#stride);
    assert(this.#entriesPerBlock > 0, 'an entry fits in a block');
  }

  get length(): number {
    return this.#length;
  }

  push({ logprob, rank, top }: TokenLogprobs): void {
    assert(top.length < this.#stride, `${top.length} top tokens where ${this.#stride - 1} were asked for`);
    const { numbers, tokens } = this.#blockFor(this.#length);
    let slot = (this.#length % this.#entriesPerBlock) * this.#stride;
    const end = slot + this.#stride;
    numbers[slot] = logprob;
    tokens[slot++] = rank;
    for (const best of top) {
      numbers[slot] = best.logprob;
      tokens[slot++] = best.token;
    }
    if (slot < end) tokens[slot] = NO_TOKEN;
    this.#length++;
  }

  pushAll(entries: Iterable<TokenLogprobs>): void {
    for (const entry of entries) this.push(entry);
  }

  at(index: number): TokenLogprobs {
    assert(index >= 0 && index < this.#length, `entry ${index} of ${this.#length}`);
    const { numbers, tokens } = this.#blocks[Math.floor(index / this.#entriesPerBlock)]!;
    const slot = (index % this.#entriesPerBlock) * this.#stride;
    const top: { readonly token: TokenId; readonly logprob: number }[] = [];
    for (let at = slot + 1; at < slot + this.#stride && tokens[at] !== NO_TOKEN; at++)
      top.push({ token: tokenId(tokens[at]!), logprob: numbers[at]! });
    return { logprob: numbers[slot]!, rank: tokens[slot]!, top };
  }

  [Symbol.iterator](): Iterator<TokenLogprobs> {
    return this.first(this.#length)[Symbol.iterator]();
  }

  /** The first entries, also after more were added. */
  first(length: number): LogprobList {
    assert(length <= this.#length, `${length} of ${this.#length} entries`);
    const at = (index: number): TokenLogprobs => this.at(index);
    return {
      length,
      *[Symbol.iterator]() {
        for (let index = 0; index < length; index++) yield at(index);
      },
    };
  }

  /** Blocks before the last are full. The first one begins small, because most lists are short. */
  #blockFor(index: number): { readonly numbers: Float64Array; readonly tokens: Int32Array } {
    const number = Math.floor(index / this.#entriesPerBlock);
    const wanted = ((index % this.#entriesPerBlock) + 1) * this.#stride;
    let block = this.#blocks[number];
    if (block === undefined) {
      const entries = number === 0 ? Math.min(ENTRIES_FIRST, this.#entriesPerBlock) : this.#entriesPerBlock;
      const slots = entries * this.#stride;
      block = { numbers: new Float64Array(slots), tokens: new Int32Array(slots) };
      this.#blocks.push(block);
    } else if (block.numbers.length < wanted) {
      const slots = Math.min(block.numbers.length * 2, this.#entriesPerBlock * this.#stride);
      block.numbers = grown(block.numbers, new Float64Array(slots));
      block.tokens = grown(block.tokens, new Int32Array(slots));
    }
    return block;
  }
}

function grown<T extends Float64Array | Int32Array>(before: T, after: T): T {
  after.set(before);
  return after;
}
