import { assert } from '../base/assert.ts';
import type { RequestOrder, RequestState } from './request-state.ts';

/** Requests that wait for admission, the next one first: a binary heap that knows where each entry is, for aborts. */
export class WaitingQueue {
  readonly #order: RequestOrder;
  readonly #heap: RequestState[] = [];
  readonly #places = new Map<RequestState, number>();

  constructor(order: RequestOrder) {
    this.#order = order;
  }

  get size(): number {
    return this.#heap.length;
  }

  peek(): RequestState | undefined {
    return this.#heap[0];
  }

  push(state: RequestState): void {
    assert(!this.#places.has(state), `request ${state.request.id} waits already`);
    this.#heap.push(state);
    this.#up(state, this.#heap.length - 1);
  }

  remove(state: RequestState): void {
    const place = this.#places.get(state);
    assert(place !== undefined, `request ${state.request.id} does not wait`);
    this.#places.delete(state);
    const last = this.#heap.pop()!;
    if (last === state) return;
    this.#down(last, place);
    this.#up(last, this.#places.get(last)!);
  }

  checkInvariants(): void {
    assert(this.#places.size === this.#heap.length, 'the queue and its places differ in size');
    for (let place = 0; place < this.#heap.length; place++) {
      const state = this.#heap[place]!;
      if (this.#places.get(state) !== place) assert(false, `request ${state.request.id} is not where the queue thinks`);
      if (state.status !== 'waiting') assert(false, `request ${state.request.id} waits, but is ${state.status}`);
      if (place > 0 && this.#order(this.#heap[(place - 1) >> 1]!, state) >= 0)
        assert(false, `request ${state.request.id} is out of order`);
    }
  }

  #up(state: RequestState, from: number): void {
    let place = from;
    for (; place > 0; ) {
      const above = (place - 1) >> 1;
      const parent = this.#heap[above]!;
      if (this.#order(parent, state) < 0) break;
      this.#put(parent, place);
      place = above;
    }
    this.#put(state, place);
  }

  #down(state: RequestState, from: number): void {
    let place = from;
    for (;;) {
      let below = place * 2 + 1;
      if (below >= this.#heap.length) break;
      if (below + 1 < this.#heap.length && this.#order(this.#heap[below + 1]!, this.#heap[below]!) < 0) below++;
      if (this.#order(state, this.#heap[below]!) < 0) break;
      this.#put(this.#heap[below]!, place);
      place = below;
    }
    this.#put(state, place);
  }

  #put(state: RequestState, place: number): void {
    this.#heap[place] = state;
    this.#places.set(state, place);
  }
}
