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
}

/**
 * Drafts from the request's own text: where the last tokens occurred before, the text continues the same way (prompt
 * lookup). The number of drafts follows their chances and the measured time of further rows.
 *
 * The token after a match is compared with the next token also if it is no draft. So chances are known without a loss.
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

  draft(decodes: readonly RequestState[], tokensLeft: number): (Int32Array | undefined)[] {
    const matches = decodes.map((state) => {
      const known = this.#knownOf(state);
      this.#compareGuess(state, known);
      return this.#find(state, known);
    });
    const proposals = matches.map((match, i) => ({
      chances: match === undefined ? nothing : this.#chances(this.#knownOf(decodes[i]!), match.length),
    }));
    if (proposals.every(({ chances }) => chances.length === 0)) return [];
    const counts = this.#prices.choose(decodes, proposals, tokensLeft);
    return decodes.map(({ tokens }, i) =>
      counts[i] === 0 ? undefined : copyFrom(tokens.view(), matches[i]!.next, counts[i]!),
    );
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

  #find(state: RequestState, known: Known): TextMatch | undefined {
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
    this.#learn(known, known.matchLength, tokens.at(guess.position) === guess.token);
  }

  #learn({ acceptance }: Known, matchLength: number, isAccepted: boolean): void {
    acceptance.observe(matchLength, isAccepted);
    this.#typical.observe(matchLength, isAccepted);
  }
}

const CHANCE_MIN = 0.05;
const nothing: readonly never[] = [];
