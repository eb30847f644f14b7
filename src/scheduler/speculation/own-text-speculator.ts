import type { SampledToken } from '../../core/step.ts';
import type { StepLoad } from '../pace.ts';
import type { RequestState } from '../request-state.ts';
import { Acceptance, typicalAcceptance } from './acceptance.ts';
import { DraftPrices } from './draft-prices.ts';
import type { OwnTextOptions } from './options.ts';
import type { Speculator } from './speculator.ts';
import { copyFrom, TextIndex, type TextMatch } from './text-index.ts';

/** What the speculator knows of one request. */
interface Known {
  readonly index: TextIndex;
  readonly acceptance: Acceptance;
  /** The length of the match of the last step. */
  matchLength: number;
  /** The token that follows the match, until it is compared. Undefined without a match. */
  guess: { readonly position: number; readonly token: number } | undefined;
  /** Searches since the last drafts, less for each match that was right; see `STEPS_BETWEEN`. */
  fruitless: number;
  /** Steps until the next search. */
  rest: number;
}

/**
 * Drafts from the request's own text: where the last tokens occurred before, the text continues the same way (prompt
 * lookup). The number of drafts follows their chances and the measured time of further rows.
 *
 * The token after a match is compared with the next token also if it is no draft. So chances are known without a loss.
 *
 * On a very small model, a search in each step takes a measurable share of the time. So a request in which searches are of no use is
 * searched in every second step, and later in every eighth.
 */
export class OwnTextSpeculator implements Speculator {
  readonly #options: OwnTextOptions;
  /** Of all requests: what a new request starts from. */
  readonly #typical = new Acceptance({ probability: typicalAcceptance, weight: 8, isForgotten: true });
  /** Entries end with their requests. */
  readonly #known = new WeakMap<RequestState, Known>();
  readonly #prices = new DraftPrices();

  constructor(options: OwnTextOptions) {
    this.#options = options;
  }

  draft(decodes: readonly RequestState[], tokensLeft: number): readonly (Int32Array | undefined)[] {
    const matches = decodes.map((state) => this.#search(state, this.#knownOf(state)));
    if (!matches.some(isMatch)) return nothing;
    return this.#choose(decodes, matches, tokensLeft);
  }

  #choose(
    decodes: readonly RequestState[],
    matches: readonly (TextMatch | undefined)[],
    tokensLeft: number,
  ): (Int32Array | undefined)[] {
    const proposals = matches.map((match, i) => ({
      chances: match === undefined ? nothing : this.#chances(this.#knownOf(decodes[i]!), match.length),
    }));
    if (proposals.every(({ chances }) => chances.length === 0)) return [];
    const counts = this.#prices.choose(decodes, proposals, tokensLeft);
    return decodes.map((state, i) => {
      if (counts[i] === 0) return undefined;
      this.#knownOf(state).fruitless = 0;
      return copyFrom(state.tokens.view(), matches[i]!.next, counts[i]!);
    });
  }

  verified(state: RequestState, drafts: Int32Array, newTokens: readonly SampledToken[]): void {
    this.#prices.verified(state, drafts.length, newTokens.length);
    const known = this.#knownOf(state);
    known.guess = undefined;
    for (let i = 0; i < Math.min(drafts.length, newTokens.length); i++) {
      const isAccepted = newTokens[i]!.token === drafts[i];
      this.#learn(known, known.matchLength + i, isAccepted);
      if (!isAccepted) return;
    }
  }

  observe(load: StepLoad, ms: number | undefined): void {
    this.#prices.observe(load, ms);
  }

  #knownOf(state: RequestState): Known {
    let known = this.#known.get(state);
    if (known === undefined) {
      const { promptLookupMin, promptLookupMax } = this.#options;
      known = {
        index: new TextIndex(state.tokens, promptLookupMin, promptLookupMax),
        acceptance: new Acceptance({
          probability: (length) => this.#typical.probability(length),
          weight: 3,
          isForgotten: false,
        }),
        matchLength: 0,
        guess: undefined,
        fruitless: 0,
        rest: 0,
      };
      this.#known.set(state, known);
    }
    return known;
  }

  /** Each accepted draft makes the match longer by one token. */
  #chances({ acceptance }: Known, matchLength: number): number[] {
    const chances: number[] = [];
    let chance = 1;
    for (let i = 0; i < this.#options.numSpeculativeTokens; i++) {
      chance *= acceptance.probability(matchLength + i);
      if (chance < CHANCE_MIN) break;
      chances.push(chance);
    }
    return chances;
  }

  #search(state: RequestState, known: Known): TextMatch | undefined {
    if (known.guess !== undefined) this.#compareGuess(state, known);
    if (known.rest > 0) {
      known.rest--;
      return undefined;
    }
    known.fruitless = Math.min(known.fruitless + 1, FRUITLESS_MAX);
    known.rest = STEPS_BETWEEN[Math.floor(known.fruitless / SEARCHES_EACH)]! - 1;
    const match = known.index.find();
    if (match === undefined) return undefined;
    known.matchLength = match.length;
    known.guess = { position: state.tokens.length, token: state.tokens.at(match.next) };
    return match;
  }

  #compareGuess({ tokens }: RequestState, known: Known): void {
    const { guess } = known;
    if (guess === undefined || guess.position >= tokens.length) return;
    known.guess = undefined;
    const isRight = tokens.at(guess.position) === guess.token;
    this.#learn(known, known.matchLength, isRight);
    if (!isRight) return;
    known.fruitless = Math.max(known.fruitless - FRUITFUL, 0);
    known.rest = 0;
  }

  #learn({ acceptance }: Known, matchLength: number, isAccepted: boolean): void {
    acceptance.observe(matchLength, isAccepted);
    this.#typical.observe(matchLength, isAccepted);
  }
}

const CHANCE_MIN = 0.05;
/** A search in so many steps, after 0, 16, 32 and 48 fruitless searches. */
const STEPS_BETWEEN: readonly number[] = [1, 2, 4, 8];
const SEARCHES_EACH = 16;
const FRUITLESS_MAX = SEARCHES_EACH * (STEPS_BETWEEN.length - 1);
/** A match that was right counts as so many fruitless searches. */
const FRUITFUL = 32;
const nothing: readonly never[] = [];
const isMatch = (match: TextMatch | undefined): boolean => match !== undefined;
