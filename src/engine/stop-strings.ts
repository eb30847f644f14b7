import { assert } from '../base/assert.ts';

export interface StopScan {
  /** Text that cannot be part of a stop string. */
  readonly text: string;
  /** The stop string that ended the text. Do not push after it. */
  readonly stop?: string;
}

/**
 * Finds stop strings in text that comes in pieces, and returns only text that cannot be the start of a stop string.
 *
 * The stop string that is *complete* first ends the text. If several are complete at the same character, the longest
 * ends it, then the first in the list. So the result does not depend on the pieces, and a match needs no later text.
 *
 * Each stop string has a Knuth-Morris-Pratt automaton. Its state is the length of the longest prefix of the stop string
 * at the end of the text: the number of characters to keep. Amortised cost: one step per character and stop string.
 */
export class StopMatcher {
  readonly #automata: readonly Automaton[];
  readonly #includeStop: boolean;
  /** Pushed text that is not returned yet; as long as the largest state. */
  #held = '';
  #hasStopped = false;

  constructor(stops: readonly string[], includeStopStrInOutput: boolean) {
    assert(!stops.includes(''), 'an empty stop string would end every text');
    this.#automata = stops.map((stop) => ({ stop, failure: failureTable(stop), state: 0 }));
    this.#includeStop = includeStopStrInOutput;
  }

  push(piece: string): StopScan {
    assert(!this.#hasStopped, 'no text is pushed after a stop string');
    if (this.#automata.length === 0) return { text: piece };
    const text = this.#held + piece;
    for (let index = this.#held.length; index < text.length; index++) {
      const stop = this.#advance(text.charCodeAt(index));
      if (stop === undefined) continue;
      this.#hasStopped = true;
      this.#held = '';
      const end = index + 1;
      return { text: text.slice(0, this.#includeStop ? end : end - stop.length), stop };
    }
    const safe = text.length - this.#heldLength();
    this.#held = text.slice(safe);
    return { text: text.slice(0, safe) };
  }

  /** Returns the kept text at the end of all text: it is not part of a stop string. */
  flush(): string {
    const text = this.#held;
    this.#held = '';
    for (const automaton of this.#automata) automaton.state = 0;
    return text;
  }

  /** The longest stop string that the character completes. */
  #advance(charCode: number): string | undefined {
    let longest: string | undefined;
    for (const automaton of this.#automata) {
      const { stop, failure } = automaton;
      let state = automaton.state;
      while (state > 0 && stop.charCodeAt(state) !== charCode) state = failure[state - 1]!;
      if (stop.charCodeAt(state) === charCode) state++;
      automaton.state = state;
      if (state === stop.length && (longest === undefined || stop.length > longest.length)) longest = stop;
    }
    return longest;
  }

  #heldLength(): number {
    let length = 0;
    for (const { state } of this.#automata) length = Math.max(length, state);
    return length;
  }
}

interface Automaton {
  readonly stop: string;
  readonly failure: Int32Array;
  state: number;
}

/** For each prefix of the pattern, the length of its longest proper prefix that is also its suffix. */
function failureTable(pattern: string): Int32Array {
  const failure = new Int32Array(pattern.length);
  for (let index = 1, length = 0; index < pattern.length; index++) {
    while (length > 0 && pattern.charCodeAt(length) !== pattern.charCodeAt(index)) length = failure[length - 1]!;
    if (pattern.charCodeAt(length) === pattern.charCodeAt(index)) length++;
    failure[index] = length;
  }
  return failure;
}
