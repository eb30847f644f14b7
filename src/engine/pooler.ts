import { assert } from '../base/assert.ts';
import type { Pooling } from '../core/request.ts';

/**
 * Turns the hidden states of a prompt into one vector. The mean adds one token after the other in doubles, so its bits do
 * not depend on chunks.
 */
export class Pooler {
  readonly #pooling: Pooling;
  readonly #promptLength: number;
  readonly #sum: Float64Array;
  #tokens = 0;

  /** `width`: the length of a hidden state. */
  constructor(pooling: Pooling, promptLength: number, width: number) {
    this.#pooling = pooling;
    this.#promptLength = promptLength;
    this.#sum = new Float64Array(width);
  }

  /** `hidden`: F32 `[width, tokens]` of the next tokens that the pooling needs. */
  add(hidden: Float32Array): void {
    const width = this.#sum.length;
    assert(hidden.length % width === 0, `hidden states of ${width} values in ${hidden.length} values`);
    for (let start = 0; start < hidden.length; start += width) this.#addOne(hidden.subarray(start, start + width));
  }

  /** The vector, after the hidden states of the whole prompt. */
  vector(): Float32Array {
    const needed = this.#pooling === 'last' ? 1 : this.#promptLength;
    assert(this.#tokens === needed, `hidden states of ${this.#tokens} instead of ${needed} tokens`);
    return Float32Array.from(this.#sum, (value) => (this.#pooling === 'mean' ? value / needed : value));
  }

  #addOne(hidden: Float32Array): void {
    this.#tokens++;
    if (this.#pooling === 'cls' && this.#tokens > 1) return;
    for (let i = 0; i < hidden.length; i++) this.#sum[i]! += hidden[i]!;
  }
}
