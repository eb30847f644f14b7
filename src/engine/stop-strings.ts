import { assert } from '../base/assert.ts';

export interface StopScan {
  /** Text that no stop string can take back any more. */
  readonly text: string;
  /** The stop string that ended the text; nothing may be pushed after it. */
  readonly stop?: string;
}

/**
 * Finds stop strings in text that arrives in pieces, and lets out only what cannot be the start of one.
 *
 * The first stop string to be *complete* wins, character by character; of several that are complete at the same
 * character, the one that starts earliest (the longest), then the first in the list. So the text does not depend on
 * how it is cut into pieces, and a match never waits for what may still come.
 *
 * One Knuth-Morris-Pratt automaton per stop string: its state, the length of the longest prefix of the stop string
 * that ends the text, is just the number of characters to hold back. Amortised cost: one step per character and string.
 */
export class StopMatcher {
  readonly #automata: readonly Automaton[];
  readonly #includeStop: boolean;
  /** Pushed and not yet let out; as long as the longest state. */
  #held = '';
  #hasStopped = false;

  constructor(stops: readonly string[], includeStopStrInOutput: boolean) {
    this.#automata = stops.map((stop) => ({ stop, failure: failureTable(stop), state: 0 }));
    this.#includeStop = includeStopStrInOutput;
  }

  push(piece: string): StopScan {
    assert(!this.#hasStopped, 'no text comes after a stop string');
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

  /** The text held back, when no more comes: it was no stop string after all. */
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
