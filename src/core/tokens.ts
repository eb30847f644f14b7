import { assert } from '../base/assert.ts';
import type { TokenId } from './ids.ts';

/**
 * The tokens of one request, prompt first. A request only appends. The tokens are in a typed array that grows by doubling, so neither the runner
 * nor the sampler allocates memory per token. Runners in this process read the same object.
 */
export class TokenBuffer {
  #data: Int32Array;
  #length: number;

  /** `capacity`: tokens that fit before the buffer grows. */
  constructor(tokens: ArrayLike<number>, capacity = tokens.length + 64) {
    this.#data = new Int32Array(Math.max(capacity, tokens.length, 1));
    this.#data.set(tokens);
    this.#length = tokens.length;
  }

  get length(): number {
    return this.#length;
  }

  /** Tokens that fit before the buffer grows. Use it as the capacity of other buffers with an entry per token. */
  get capacity(): number {
    return this.#data.length;
  }

  at(position: number): TokenId {
    if (position < 0 || position >= this.#length) failAt(position, this.#length);
    return this.#data[position] as TokenId;
  }

  push(token: TokenId): void {
    if (this.#length === this.#data.length) {
      const grown = new Int32Array(this.#data.length * 2);
      grown.set(this.#data);
      this.#data = grown;
    }
    this.#data[this.#length++] = token;
  }

  /** Only for a buffer without other readers. */
  truncate(length: number): void {
    if (length > this.#length) failRange(0, length, this.#length);
    this.#length = length;
  }

  /** A view, valid until the next `push`. */
  view(start = 0, end = this.#length): Int32Array {
    if (start < 0 || start > end || end > this.#length) failRange(start, end, this.#length);
    return this.#data.subarray(start, end);
  }
}

/** Tokens are read one by one, so the messages are built only if the assertions fail. */
function failAt(position: number, length: number): never {
  assert(false, `token position ${position} outside [0, ${length})`);
}

function failRange(start: number, end: number, length: number): never {
  assert(false, `token range [${start}, ${end}) outside [0, ${length})`);
}
