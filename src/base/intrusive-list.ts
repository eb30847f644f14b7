import { assert } from './assert.ts';

/**
 * A doubly linked list over the integers [0, capacity), each in it at most once. The links lie in two typed arrays,
 * so that linking and unlinking are a few stores and nothing is ever allocated.
 *
 * One node more than the capacity closes the ring: `links[capacity]` is before the first and after the last.
 */
export class IntrusiveList {
  readonly #next: Int32Array;
  readonly #previous: Int32Array;
  readonly #ring: number;
  #size = 0;

  constructor(capacity: number) {
    assert(Number.isInteger(capacity) && capacity >= 0, `list capacity ${capacity}`);
    this.#ring = capacity;
    this.#next = new Int32Array(capacity + 1).fill(UNLINKED);
    this.#previous = new Int32Array(capacity + 1).fill(UNLINKED);
    this.#next[capacity] = capacity;
    this.#previous[capacity] = capacity;
  }

  get size(): number {
    return this.#size;
  }

  has(id: number): boolean {
    return this.#next[id] !== UNLINKED;
  }

  /** The first in order, or undefined when the list is empty. */
  first(): number | undefined {
    return this.#size === 0 ? undefined : this.#next[this.#ring];
  }

  /** The one after `id`, or undefined when it is the last. */
  after(id: number): number | undefined {
    const next = this.#next[id]!;
    return next === this.#ring ? undefined : next;
  }

  pushFront(id: number): void {
    this.#link(id, this.#ring, this.#next[this.#ring]!);
  }

  pushBack(id: number): void {
    this.#link(id, this.#previous[this.#ring]!, this.#ring);
  }

  remove(id: number): void {
    if (id < 0 || id >= this.#ring || !this.has(id)) fail(`list does not hold ${id}`);
    const next = this.#next[id]!;
    const previous = this.#previous[id]!;
    this.#next[previous] = next;
    this.#previous[next] = previous;
    this.#next[id] = UNLINKED;
    this.#previous[id] = UNLINKED;
    this.#size--;
  }

  /** Walks the ring both ways. O(size). */
  checkInvariants(): void {
    let count = 0;
    for (let at = this.#next[this.#ring]!; at !== this.#ring; at = this.#next[at]!) {
      if (this.#previous[this.#next[at]!] !== at) fail(`list link after ${at} does not lead back`);
      if (++count > this.#size) fail('list ring is longer than its size');
    }
    if (count !== this.#size) fail(`list holds ${count}, its size says ${this.#size}`);
  }

  #link(id: number, previous: number, next: number): void {
    if (id < 0 || id >= this.#ring || this.has(id)) fail(`list cannot take ${id}`);
    this.#next[id] = next;
    this.#previous[id] = previous;
    this.#next[previous] = id;
    this.#previous[next] = id;
    this.#size++;
  }
}

const UNLINKED = -1;

/** Links change once per page: the sentence is made only when it is needed. */
function fail(message: string): never {
  assert(false, message);
}
