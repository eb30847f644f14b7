import { assert } from './assert.ts';

/**
 * A doubly linked list of integers in [0, capacity), each at most once. Two typed arrays contain the links, so linking
 * and unlinking allocate no memory.
 *
 * A sentinel node, `links[capacity]`, is before the first node and after the last node.
 */
export class IntrusiveList {
  readonly #next: Int32Array;
  readonly #previous: Int32Array;
  readonly #sentinel: number;
  #size = 0;

  constructor(capacity: number) {
    assert(Number.isInteger(capacity) && capacity >= 0, `list capacity ${capacity}`);
    this.#sentinel = capacity;
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

  /** The first integer, or undefined if the list is empty. */
  first(): number | undefined {
    return this.#size === 0 ? undefined : this.#next[this.#sentinel];
  }

  /** The integer after `id`, or undefined if `id` is the last. */
  after(id: number): number | undefined {
    const next = this.#next[id]!;
    return next === this.#sentinel ? undefined : next;
  }

  pushFront(id: number): void {
    this.#link(id, this.#sentinel, this.#next[this.#sentinel]!);
  }

  pushBack(id: number): void {
    this.#link(id, this.#previous[this.#sentinel]!, this.#sentinel);
  }

  remove(id: number): void {
    if (id < 0 || id >= this.#sentinel || !this.has(id)) fail(`list does not contain ${id}`);
    const next = this.#next[id]!;
    const previous = this.#previous[id]!;
    this.#next[previous] = next;
    this.#previous[next] = previous;
    this.#next[id] = UNLINKED;
    this.#previous[id] = UNLINKED;
    this.#size--;
  }

  /** Checks the links in both directions. O(size). */
  checkInvariants(): void {
    let count = 0;
    for (let at = this.#next[this.#sentinel]!; at !== this.#sentinel; at = this.#next[at]!) {
      if (this.#previous[this.#next[at]!] !== at) fail(`list link after ${at} does not lead back`);
      if (++count > this.#size) fail('list has more links than its size');
    }
    if (count !== this.#size) fail(`list has ${count} links, but its size is ${this.#size}`);
  }

  #link(id: number, previous: number, next: number): void {
    if (id < 0 || id >= this.#sentinel || this.has(id)) fail(`list cannot insert ${id}`);
    this.#next[id] = next;
    this.#previous[id] = previous;
    this.#next[previous] = id;
    this.#previous[next] = id;
    this.#size++;
  }
}

const UNLINKED = -1;

/** Links change for every block, so the message is built only if the check fails. */
function fail(message: string): never {
  assert(false, message);
}
