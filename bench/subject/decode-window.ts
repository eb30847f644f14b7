import { notAllAtOnce } from '../errors.ts';

/**
 * The time in which all sequences generate. It begins with the first token of the last sequence, and ends with the last
 * token before one of them has all its tokens. Both ends are arrivals of tokens, so the window has whole steps, without
 * prompts.
 */
export class DecodeWindow<Reading> {
  readonly #counts: Uint32Array;
  readonly #tokensEach: number;
  readonly #read: () => Reading;
  #silentCount: number;
  #tokenCount = 0;
  #isOver: boolean = false;
  #from: Mark<Reading> | undefined;
  #to: Mark<Reading> | undefined;

  /** `read` returns the clocks; it is called each time that tokens come. */
  constructor(sequences: number, tokensEach: number, read: () => Reading) {
    this.#counts = new Uint32Array(sequences);
    this.#silentCount = sequences;
    this.#tokensEach = tokensEach;
    this.#read = read;
  }

  /** Counts tokens of a sequence that have come. */
  add(sequence: number, count: number): void {
    if (count === 0) return;
    const before = this.#counts[sequence] ?? 0;
    if (before === 0) this.#silentCount--;
    this.#counts[sequence] = before + count;
    this.#tokenCount += count;
    if (before + count >= this.#tokensEach) this.#isOver = true;
    if (this.#isOver || this.#silentCount > 0) return;
    this.#to = { reading: this.#read(), tokenCount: this.#tokenCount };
    this.#from ??= this.#to;
  }

  /** `tokens`: the tokens that came after `from`, until `to`. Throws `notAllAtOnce`. */
  result(): { readonly from: Reading; readonly to: Reading; readonly tokens: number } {
    const [from, to] = [this.#from, this.#to];
    if (from === undefined || to === undefined || from === to) throw notAllAtOnce({ batch: this.#counts.length });
    return { from: from.reading, to: to.reading, tokens: to.tokenCount - from.tokenCount };
  }
}

interface Mark<Reading> {
  readonly reading: Reading;
  readonly tokenCount: number;
}
