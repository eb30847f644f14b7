import { assert } from '../../base/assert.ts';
import type { TokenBuffer } from '../../core/tokens.ts';

/** An earlier place in a text with the same tokens before it as the end of the text. */
export interface TextMatch {
  /** The position after the matching tokens: the token there is the first draft. */
  readonly next: number;
  /** How many tokens match, up to `MATCH_LENGTH_MAX`. */
  readonly length: number;
}

/**
 * Finds where the last tokens of a text occurred before. Positions with the same last `lengthMin` tokens are linked in
 * chains, latest first, as in LZ77. O(`lengthMin`) per appended token, and a bounded search per call of `find`.
 */
export class TextIndex {
  readonly #tokens: TokenBuffer;
  readonly #lengthMin: number;
  readonly #lengthMax: number;
  /** By hash: the last indexed position with this hash, plus one. The size is a power of two. */
  #heads: Int32Array;
  /** By position: the position before it in its chain, plus one. */
  #before: Int32Array;
  /** Positions below it are indexed. A position stands for the tokens that end with it. */
  #indexed: number;

  /** Longer matches than `lengthMax` are no better. */
  constructor(tokens: TokenBuffer, lengthMin: number, lengthMax: number) {
    assert(lengthMin >= 1 && lengthMin <= lengthMax, `matches of ${lengthMin} to ${lengthMax} tokens`);
    this.#tokens = tokens;
    this.#lengthMin = lengthMin;
    this.#lengthMax = lengthMax;
    this.#heads = new Int32Array(HEADS_MIN);
    this.#before = new Int32Array(HEADS_MIN);
    this.#indexed = lengthMin - 1;
  }

  /** The longest match, and of equally long ones the latest. Undefined: the last `lengthMin` tokens are new. */
  find(): TextMatch | undefined {
    const text = this.#tokens.view();
    const last = text.length - 1;
    if (last < this.#lengthMin) return undefined;
    this.#index(text, last);
    let best = 0;
    let next = 0;
    let candidate = this.#heads[this.#hash(text, last)]!;
    for (let visits = 0; candidate > 0 && visits < CANDIDATES_MAX; visits++) {
      const end = candidate - 1;
      // A better match has one more token than the best one, so compare that token first.
      if (best === 0 || text[end - best] === text[last - best]) {
        const length = matchLength(text, end, last, this.#lengthMax);
        if (length > best) [best, next] = [length, end + 1];
        if (best === this.#lengthMax) break;
      }
      candidate = this.#before[end]!;
    }
    if (best < this.#lengthMin) return undefined;
    return { next, length: matchLength(text, next - 1, last, MATCH_LENGTH_MAX) };
  }

  /** Indexes the positions below `end`. */
  #index(text: Int32Array, end: number): void {
    if (end > this.#heads.length) {
      const size = 2 ** Math.ceil(Math.log2(2 * end));
      this.#heads = new Int32Array(size);
      this.#before = new Int32Array(size);
      this.#indexed = this.#lengthMin - 1;
    }
    for (; this.#indexed < end; this.#indexed++) {
      const hash = this.#hash(text, this.#indexed);
      this.#before[this.#indexed] = this.#heads[hash]!;
      this.#heads[hash] = this.#indexed + 1;
    }
  }

  /** Of the last `lengthMin` tokens up to `end`. */
  #hash(text: Int32Array, end: number): number {
    let hash = 0;
    for (let at = end - this.#lengthMin + 1; at <= end; at++) hash = Math.imul(hash ^ text[at]!, 0x9e3779b1);
    return (hash ^ (hash >>> 15)) & (this.#heads.length - 1);
  }
}

/**
 * The `count` tokens from `next` on. After the end of the text they continue with themselves: the text may repeat the
 * last few tokens again and again.
 */
export function copyFrom(text: Int32Array, next: number, count: number): Int32Array {
  const copy = new Int32Array(count);
  for (let i = 0; i < count; i++) copy[i] = next + i < text.length ? text[next + i]! : copy[next + i - text.length]!;
  return copy;
}

function matchLength(text: Int32Array, end: number, last: number, lengthMax: number): number {
  let length = 0;
  while (length < lengthMax && length <= end && text[end - length] === text[last - length]) length++;
  return length;
}

/** Longer matches are not distinguished. */
export const MATCH_LENGTH_MAX = 32;
/** Earlier places that `find` compares at most. */
const CANDIDATES_MAX = 64;
const HEADS_MIN = 1024;
