import { assert } from '../../base/assert.ts';
import type { SampledToken } from '../../core/step.ts';
import type { StepLoad } from '../pace.ts';
import type { RequestState } from '../request-state.ts';
import { Acceptance } from './acceptance.ts';
import { chooseDrafts } from './choose-drafts.ts';
import { DraftCost } from './draft-cost.ts';
import type { GuessOrder, Speculator } from './speculator.ts';

interface Guess {
  /** The number of the request's tokens that the guess follows. */
  readonly length: number;
  readonly tokens: Int32Array;
}

/**
 * Drafts from a small model with the same vocabulary. Before each step of decodes, the model guesses as many tokens as give the most
 * expected tokens per millisecond, with the time of both models. No draft is made where that is none.
 */
export class DraftModelSpeculator implements Speculator {
  readonly #countMax: number;
  readonly #cost = new DraftCost();
  /** Of all requests: what a new request starts from. By position in the draft, from 1. */
  readonly #typical = new Acceptance(() => TYPICAL_ACCEPTANCE, 8);
  /** Entries end with their requests. */
  readonly #acceptances = new WeakMap<RequestState, Acceptance>();
  #ordered: readonly RequestState[] = nothing;
  #count = 0;
  readonly #guesses = new Map<RequestState, Guess>();
  /** Milliseconds of the draft model for one more token of each request; undefined: not measured. */
  #msPerGuess: number | undefined;

  constructor(countMax: number) {
    this.#countMax = countMax;
  }

  orderGuesses(decodes: readonly RequestState[]): GuessOrder | undefined {
    this.#guesses.clear();
    this.#count = this.#countWorth(decodes);
    if (this.#count === 0) return undefined;
    this.#ordered = decodes;
    // A copy: the model may compute a new text beside the next steps, in which the request's tokens grow.
    const requests = decodes.map(({ request, tokens }) => ({ id: request.id, text: tokens.view().slice() }));
    return { requests, count: this.#count };
  }

  takeGuesses(guesses: readonly Int32Array[], ms: number): void {
    assert(guesses.length === this.#ordered.length, 'a guess for each ordered request');
    for (const [i, state] of this.#ordered.entries())
      if (guesses[i]!.length > 0) this.#guesses.set(state, { length: state.tokens.length, tokens: guesses[i]! });
    if (this.#guesses.size === guesses.length) this.#measured(ms / this.#count);
    this.#ordered = nothing;
  }

  draft(decodes: readonly RequestState[], tokensLeft: number): (Int32Array | undefined)[] {
    const guesses = decodes.map((state) => {
      const guess = this.#guesses.get(state);
      return guess?.length === state.tokens.length ? guess.tokens : noTokens;
    });
    this.#guesses.clear();
    if (guesses.every(({ length }) => length === 0)) return [];
    const proposals = guesses.map(({ length }, i) => ({ chances: this.#chances(decodes[i]!, length) }));
    const counts = chooseDrafts(proposals, decodes.length, tokensLeft, this.#msWith(decodes));
    return guesses.map((tokens, i) => (counts[i] === 0 ? undefined : tokens.subarray(0, counts[i])));
  }

  verified(state: RequestState, drafts: Int32Array, newTokens: readonly SampledToken[]): void {
    const acceptance = this.#acceptanceOf(state);
    for (let i = 0; i < Math.min(drafts.length, newTokens.length); i++) {
      const isAccepted = newTokens[i]!.token === drafts[i];
      acceptance.observe(i + 1, isAccepted);
      this.#typical.observe(i + 1, isAccepted);
      if (!isAccepted) return;
    }
  }

  observe(load: StepLoad, ms: number | undefined): void {
    this.#cost.observe(load, ms);
  }

  #acceptanceOf(state: RequestState): Acceptance {
    let acceptance = this.#acceptances.get(state);
    if (acceptance === undefined) {
      acceptance = new Acceptance((position) => this.#typical.probability(position), 3);
      this.#acceptances.set(state, acceptance);
    }
    return acceptance;
  }

  /** How many guesses for each request are worth their time in both models. After many steps without guesses, one is tried. */
  #countWorth(decodes: readonly RequestState[]): number {
    if (this.#msPerGuess === undefined) return this.#countMax;
    const msWith = this.#msWith(decodes);
    const chances = decodes.map((state) => this.#chances(state, this.#countMax));
    let tokens = decodes.length;
    let best = tokens / msWith(0);
    let count = 0;
    for (let i = 0; i < this.#countMax; i++) {
      for (const ofRequest of chances) tokens += ofRequest[i]!;
      const rate = tokens / (msWith((i + 1) * decodes.length) + (i + 1) * this.#msPerGuess);
      if (rate > best) [best, count] = [rate, i + 1];
    }
    if (count === 0) for (const state of decodes) this.#acceptanceOf(state).forget(1);
    return count;
  }

  #chances(state: RequestState, count: number): number[] {
    const acceptance = this.#acceptanceOf(state);
    const chances: number[] = [];
    let chance = 1;
    for (let i = 0; i < count; i++) {
      chance *= acceptance.probability(i + 1);
      chances.push(chance);
    }
    return chances;
  }

  #msWith(decodes: readonly RequestState[]): (drafts: number) => number {
    let decodeContext = 0;
    for (const { tokens } of decodes) decodeContext += tokens.length;
    const perDraft = decodeContext / decodes.length;
    return (drafts) =>
      this.#cost.msOf({ decodes: decodes.length, decodeContext, drafts, draftContext: drafts * perDraft });
  }

  #measured(msPerGuess: number): void {
    this.#msPerGuess = this.#msPerGuess === undefined ? msPerGuess : 0.8 * this.#msPerGuess + 0.2 * msPerGuess;
  }
}

const TYPICAL_ACCEPTANCE = 0.7;
const noTokens = new Int32Array(0);
const nothing: readonly never[] = [];
