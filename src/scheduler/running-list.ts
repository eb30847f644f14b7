import { assert, assertDefined } from '../base/assert.ts';
import type { RequestOrder, RequestState } from './request-state.ts';

/**
 * The running requests, in the order in which steps schedule them. The last request is preempted first. FCFS: in order
 * of admission. Priority: in order of priority, so a request that is already in a step is never its victim.
 */
export class RunningList {
  readonly #order: RequestOrder | undefined;
  readonly #states: RequestState[] = [];

  /** Without an order, `insert` appends. */
  constructor(order: RequestOrder | undefined) {
    this.#order = order;
  }

  get size(): number {
    return this.#states.length;
  }

  at(index: number): RequestState {
    return this.#states[index]!;
  }

  insert(state: RequestState): void {
    let place = this.#states.length;
    if (this.#order !== undefined) while (place > 0 && this.#order(state, this.#states[place - 1]!) < 0) place--;
    this.#states.splice(place, 0, state);
  }

  last(): RequestState {
    return assertDefined(this.#states[this.#states.length - 1], 'no request is running');
  }

  popLast(): RequestState {
    return assertDefined(this.#states.pop(), 'no request is running');
  }

  remove(state: RequestState): void {
    const place = this.#states.indexOf(state);
    assert(place >= 0, `request ${state.request.id} is not in the running list`);
    this.#states.splice(place, 1);
  }

  /** Removes requests that have ended. O(size), once per step. */
  dropEnded(): void {
    let kept = 0;
    for (let i = 0; i < this.#states.length; i++) {
      const state = this.#states[i]!;
      if (state.status !== 'ended') this.#states[kept++] = state;
    }
    this.#states.length = kept;
  }

  checkInvariants(): void {
    for (let place = 0; place < this.#states.length; place++) {
      const state = this.#states[place]!;
      if (state.status !== 'running') assert(false, `request ${state.request.id} runs, but is ${state.status}`);
      if (!state.kv.admitted) assert(false, `request ${state.request.id} runs without blocks`);
      if (this.#order !== undefined && place > 0 && this.#order(this.#states[place - 1]!, state) >= 0)
        assert(false, `request ${state.request.id} runs out of order`);
    }
  }
}
