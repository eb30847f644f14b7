import { assert } from '../../base/assert.ts';
import type { BlockId } from '../../core/ids.ts';
import { TokenBuffer } from '../../core/tokens.ts';
import type { HiddenStates } from '../contract.ts';

/**
 * The text of one request as its prediction layer reads it. An entry is a token and the hidden state of the token before it.
 *
 *   position of the request      start            start + computed        start + tokens.length
 *                                  | KV is in the blocks | hidden states wait    |
 *
 * A context is contiguous. The model has no hidden states of tokens whose KV it did not compute, as after a hit of the prefix cache. Then
 * the context begins anew after them. The layer has its own KV, so positions count from the start of the context.
 */
export class PredictionContext {
  /** The position of the first token in the request. */
  start = 0;
  tokens = new TokenBuffer([]);
  /** Tokens whose KV is in the blocks. */
  computed = 0;
  /** The blocks of the layer's KV. */
  readonly blocks: BlockId[] = [];
  /** Of a hidden state. */
  readonly width: number;
  #waiting: Float32Array;

  constructor(width: number) {
    this.width = width;
    this.#waiting = new Float32Array(width);
  }

  /** The position after the last token. */
  get end(): number {
    return this.start + this.tokens.length;
  }

  /** Tokens whose KV is to be computed. */
  get waiting(): number {
    return this.tokens.length - this.computed;
  }

  /** Entries from `position` on replace those that the context has there. `hidden`: one row for each token. */
  append(position: number, tokens: Int32Array, hidden: HiddenStates): void {
    assert(hidden.length === tokens.length * this.width, 'a hidden state for each token');
    if (tokens.length === 0) return;
    if (position < this.start || position > this.end) this.#restart(position);
    else this.truncate(position - this.start);
    const before = this.waiting * this.width;
    this.#reserve(before + hidden.length);
    this.#waiting.set(hidden, before);
    for (let i = 0; i < tokens.length; i++) this.tokens.push(tokens[i] as ReturnType<TokenBuffer['at']>);
  }

  /** The hidden states of the tokens from `computed` to `end`: an index of the context. A view. */
  hiddenUntil(end: number): HiddenStates {
    return this.#waiting.subarray(0, (end - this.computed) * this.width);
  }

  /** KV of the tokens before `end` is computed. */
  advance(end: number): void {
    const [from, to] = [(end - this.computed) * this.width, this.waiting * this.width];
    // The hidden states of a long prompt do not stay in memory.
    if (this.#waiting.length > KEPT_ROWS_MAX * this.width) this.#waiting = this.#waiting.slice(from, to);
    else this.#waiting.copyWithin(0, from, to);
    this.computed = end;
  }

  /** Without the tokens from `length` on. */
  truncate(length: number): void {
    if (length >= this.tokens.length) return;
    this.tokens.truncate(length);
    this.computed = Math.min(this.computed, length);
  }

  /** Only the tokens remain whose KV is to be computed. The blocks can be used for them. */
  forgetComputed(): void {
    this.tokens = new TokenBuffer(this.tokens.view(this.computed));
    this.start += this.computed;
    this.computed = 0;
  }

  /** Only the last token remains, with which the next draft begins. */
  keepLast(): void {
    this.advance(this.tokens.length - 1);
    this.forgetComputed();
  }

  #restart(position: number): void {
    this.tokens.truncate(0);
    this.computed = 0;
    this.start = position;
  }

  #reserve(length: number): void {
    if (this.#waiting.length >= length) return;
    const grown = new Float32Array(Math.max(length, 2 * this.#waiting.length));
    grown.set(this.#waiting.subarray(0, this.waiting * this.width));
    this.#waiting = grown;
  }
}

/** So many hidden states wait in memory without a new allocation. */
const KEPT_ROWS_MAX = 128;
