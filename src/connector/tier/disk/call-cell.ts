import { assert } from '../../../base/assert.ts';

/**
 * Decides between a thread that writes results into the caller's memory and a caller that gives up. After the caller has
 * given up, the thread writes nothing. The thread claims the call for each part of its result, and releases it afterwards.
 *
 *     wanted  -- claim, by the thread -->   claimed    thread writes a part of the result
 *     claimed -- release -->                wanted
 *     wanted  -- abandon, by the caller --> abandoned  nothing is written afterwards
 *     claimed -- abandon -->                ending     the thread writes the rest of this part, and then ends the call
 *     ending  -- release -->                abandoned
 */
export class CallCell {
  readonly memory: SharedArrayBuffer;
  readonly #state: Int32Array;

  constructor(memory = new SharedArrayBuffer(4)) {
    this.memory = memory;
    this.#state = new Int32Array(memory);
  }

  /** For the caller, before each call. */
  begin(): void {
    Atomics.store(this.#state, 0, states.wanted);
  }

  /** For the caller, once per call. False: the thread has claimed the call, and answers soon. */
  abandon(): boolean {
    for (;;) {
      if (this.#change('wanted', 'abandoned')) return true;
      if (this.#change('claimed', 'ending')) return false;
      assert(!this.isAbandoned, 'a call was abandoned twice');
    }
  }

  /** For the thread. False: the result is not needed. True: until `release` the thread only does short work in memory. */
  claim(): boolean {
    const isClaimed = this.#change('wanted', 'claimed');
    assert(isClaimed || this.isAbandoned, 'a claimed call was claimed again');
    return isClaimed;
  }

  /** For the thread, after `claim`. False: the caller has given up meanwhile. */
  release(): boolean {
    if (this.#change('claimed', 'wanted')) return true;
    assert(this.#change('ending', 'abandoned'), 'a call was released without a claim');
    return false;
  }

  get isAbandoned(): boolean {
    const state = Atomics.load(this.#state, 0);
    return state === states.abandoned || state === states.ending;
  }

  #change(from: keyof typeof states, to: keyof typeof states): boolean {
    return Atomics.compareExchange(this.#state, 0, states[from], states[to]) === states[from];
  }
}

const states = { wanted: 0, claimed: 1, abandoned: 2, ending: 3 } as const;
