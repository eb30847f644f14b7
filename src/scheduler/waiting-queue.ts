import { assert } from '../base/assert.ts';
import type { RequestOrder, RequestState } from './request-state.ts';

/**
 * Requests that wait for admission, the next one first: a binary heap with the position of each entry, for aborts.
 * Deferred requests are not in the heap until they ask their connector again, so others pass them.
 */
export class WaitingQueue {
  readonly #order: RequestOrder;
  readonly #heap: RequestState[] = [];
  readonly #places = new Map<RequestState, number>();
  #deferred: RequestState[] = [];

  constructor(order: RequestOrder) {
    this.#order = order;
  }

  /** The number of requests without the deferred ones. */
  get size(): number {
    return this.#heap.length;
  }

  /** Requests whose connector answered "ask later", in the order of the answers. */
  get deferred(): readonly RequestState[] {
    return this.#deferred;
  }

  peek(): RequestState | undefined {
    return this.#heap[0];
  }

  /** The first request for which `isWanted` is true. O(requests). */
  find(isWanted: (state: RequestState) => boolean): RequestState | undefined {
    let first: RequestState | undefined;
    for (const state of this.#heap)
      if ((first === undefined || this.#order(state, first) < 0) && isWanted(state)) first = state;
    return first;
  }

  push(state: RequestState): void {
    assert(!this.#places.has(state), `request ${state.request.id} is in the queue already`);
    this.#heap.push(state);
    this.#up(state, this.#heap.length - 1);
  }

  /** The request's connector answered "ask later". */
  defer(state: RequestState): void {
    this.remove(state);
    state.isDeferred = true;
    this.#deferred.push(state);
  }

  /**
   * Deferred requests go back to the queue after their deadline; all of them if a connector has notified the engine.
   */
  requeueDeferred({ nowMs, isNotified }: { readonly nowMs: number; readonly isNotified: boolean }): void {
    if (this.#deferred.length === 0) return;
    for (const state of this.#deferred) {
      if (!isNotified && state.queryDeadlineMs !== undefined && state.queryDeadlineMs > nowMs) continue;
      state.isDeferred = false;
      this.push(state);
    }
    this.#deferred = this.#deferred.filter(({ isDeferred }) => isDeferred);
  }

  remove(state: RequestState): void {
    if (state.isDeferred) {
      state.isDeferred = false;
      this.#deferred = this.#deferred.filter((other) => other !== state);
      return;
    }
    const place = this.#places.get(state);
    assert(place !== undefined, `request ${state.request.id} is not in the queue`);
    this.#places.delete(state);
    const last = this.#heap.pop()!;
    if (last === state) return;
    this.#down(last, place);
    this.#up(last, this.#places.get(last)!);
  }

  checkInvariants(): void {
    for (const state of this.#deferred) {
      assert(state.isDeferred, `request ${state.request.id} is deferred, but isDeferred is false`);
      assert(state.status === 'waiting', `request ${state.request.id} is deferred, but is ${state.status}`);
    }
    assert(this.#places.size === this.#heap.length, 'the queue and its positions differ in size');
    for (let place = 0; place < this.#heap.length; place++) {
      const state = this.#heap[place]!;
      if (this.#places.get(state) !== place) assert(false, `request ${state.request.id} is not at its position`);
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
