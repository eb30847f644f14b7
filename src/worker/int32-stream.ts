import { assert } from '../base/assert.ts';

/** Writes 32-bit integers into one array, which is reused for every message. */
export class Int32Writer {
  #data = new Int32Array(256);
  #length = 0;

  clear(): void {
    this.#length = 0;
  }

  push(value: number): void {
    this.#reserve(1);
    this.#data[this.#length++] = value;
  }

  pushAll(values: Int32Array): void {
    this.#reserve(values.length);
    this.#data.set(values, this.#length);
    this.#length += values.length;
  }

  /** Writes 0 and returns its position, so that `at` can replace it later. */
  skip(): number {
    this.push(0);
    return this.#length - 1;
  }

  at(position: number, value: number): void {
    assert(position < this.#length, `position ${position} of ${this.#length}`);
    this.#data[position] = value;
  }

  /** A view, valid until the next write. */
  view(): Int32Array {
    return this.#data.subarray(0, this.#length);
  }

  #reserve(count: number): void {
    if (this.#length + count <= this.#data.length) return;
    const grown = new Int32Array(Math.max(this.#length + count, this.#data.length * 2));
    grown.set(this.#data.subarray(0, this.#length));
    this.#data = grown;
  }
}

export class Int32Reader {
  readonly #data: Int32Array;
  #at = 0;

  constructor(data: Int32Array) {
    this.#data = data;
  }

  get isAtEnd(): boolean {
    return this.#at === this.#data.length;
  }

  next(): number {
    assert(this.#at < this.#data.length, 'a message ends too early');
    return this.#data[this.#at++]!;
  }

  /** The next `count` integers as a view of the message. */
  take(count: number): Int32Array {
    assert(count >= 0 && this.#at + count <= this.#data.length, 'a message ends too early');
    this.#at += count;
    return this.#data.subarray(this.#at - count, this.#at);
  }
}
