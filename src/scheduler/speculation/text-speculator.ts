import type { SampledToken } from '../../core/step.ts';
import type { RequestState } from '../request-state.ts';
import type { StepLoad } from '../step-load.ts';
import { Acceptance, typicalAcceptance } from './acceptance.ts';
import type { Continuation, ContinuationFinder } from './continuation.ts';
import { DraftPrices } from './draft-prices.ts';
import type { OwnTextOptions, SuffixOptions } from './options.ts';
import { OwnTextFinder } from './own-text-finder.ts';
import { ResponseCache } from './response-cache.ts';
import type { Speculator } from './speculator.ts';
import { SuffixFinder } from './suffix-finder.ts';

/** What the speculator knows of one request. */
interface Known {
  readonly finder: ContinuationFinder;
  readonly acceptance: Acceptance;
  /** The continuation that was found last. */
  found: Continuation | undefined;
  /** The position of its first token, until that is compared. */
  draftedAt: number | undefined;
  /** Searches since the last drafts, less for each match that was right; see `STEPS_BETWEEN`. */
  fruitless: number;
  /** Steps until the next search. */
  rest: number;
}

/**
 * Drafts from texts: where the last tokens occurred before, the text continues the same way. The number of drafts follows their
 * chances and the measured time of further rows.
 *
 * With `ngram`, the text is that of the request (prompt lookup). With `suffix`, earlier outputs are searched too.
 *
 * The first token of a continuation is compared with the next token also if it is no draft. So chances are known without a loss.
 *
 * On a very small model, a search in each step takes a measurable share of the time. So a request in which searches are of no use is
 * searched in every second step, and later in every eighth.
 */
export class TextSpeculator implements Speculator {
  readonly #options: OwnTextOptions | SuffixOptions;
  readonly #responses: ResponseCache | undefined;
  /** Of all requests: what a new request starts from. */
  readonly #typical = new Acceptance({ probability: typicalAcceptance, weight: 8, isForgotten: true });
  /** Entries end with their requests. */
  readonly #known = new WeakMap<RequestState, Known>();
  readonly #prices = new DraftPrices();

  constructor(options: OwnTextOptions | SuffixOptions) {
    this.#options = options;
    if (options.method === 'ngram' || options.suffixDecodingMaxCachedRequests === 0) return;
    const { suffixDecodingMaxTreeDepth: depthMax, suffixDecodingMaxCachedRequests: responsesMax } = options;
    this.#responses = new ResponseCache(depthMax, responsesMax);
  }

  draft(decodes: readonly RequestState[], tokensLeft: number): readonly (Int32Array | undefined)[] {
    const found = decodes.map((state) => this.#search(state, this.#knownOf(state)));
    if (!found.some(isFound)) return nothing;
    return this.#choose(decodes, found, tokensLeft);
  }

  #choose(
    decodes: readonly RequestState[],
    found: readonly (Continuation | undefined)[],
    tokensLeft: number,
  ): (Int32Array | undefined)[] {
    const proposals = found.map((continuation, i) => ({
      chances: continuation === undefined ? nothing : chancesOf(continuation, this.#knownOf(decodes[i]!).acceptance),
    }));
    if (proposals.every(({ chances }) => chances.length === 0)) return [];
    const counts = this.#prices.choose(decodes, proposals, tokensLeft);
    return decodes.map((state, i) => {
      if (counts[i] === 0) return undefined;
      this.#knownOf(state).fruitless = 0;
      return found[i]!.tokens.subarray(0, counts[i]!);
    });
  }

  verified(state: RequestState, drafts: Int32Array, newTokens: readonly SampledToken[]): void {
    this.#prices.verified(state, drafts.length, newTokens.length);
    const known = this.#knownOf(state);
    known.draftedAt = undefined;
    for (let i = 0; i < Math.min(drafts.length, newTokens.length); i++) {
      const isAccepted = newTokens[i]!.token === drafts[i];
      this.#learn(known, i, isAccepted);
      if (!isAccepted) return;
    }
  }

  ended({ tokens, request, outputTokens }: RequestState): void {
    this.#responses?.add(request.cacheSalt, tokens.view(tokens.length - outputTokens));
  }

  observe(load: StepLoad, ms: number | undefined): void {
    this.#prices.observe(load, ms);
  }

  #knownOf(state: RequestState): Known {
    let known = this.#known.get(state);
    if (known === undefined) {
      known = {
        finder: this.#finderOf(state),
        acceptance: new Acceptance({
          probability: (length) => this.#typical.probability(length),
          weight: 3,
          isForgotten: false,
        }),
        found: undefined,
        draftedAt: undefined,
        fruitless: 0,
        rest: 0,
      };
      this.#known.set(state, known);
    }
    return known;
  }

  #finderOf({ tokens, request }: RequestState): ContinuationFinder {
    const options = this.#options;
    if (options.method === 'ngram') return new OwnTextFinder(tokens, options);
    return new SuffixFinder(tokens, options, request.cacheSalt, this.#responses);
  }

  #search(state: RequestState, known: Known): Continuation | undefined {
    if (known.draftedAt !== undefined) this.#compareDraft(state, known);
    if (known.rest > 0) {
      known.rest--;
      return undefined;
    }
    known.fruitless = Math.min(known.fruitless + 1, FRUITLESS_MAX);
    known.rest = STEPS_BETWEEN[Math.floor(known.fruitless / SEARCHES_EACH)]! - 1;
    known.found = known.finder.find();
    known.draftedAt = known.found && state.tokens.length;
    return known.found;
  }

  #compareDraft({ tokens }: RequestState, known: Known): void {
    const { draftedAt } = known;
    if (draftedAt === undefined || draftedAt >= tokens.length) return;
    known.draftedAt = undefined;
    const isRight = tokens.at(draftedAt) === known.found!.tokens[0];
    this.#learn(known, 0, isRight);
    if (!isRight) return;
    known.fruitless = Math.max(known.fruitless - FRUITFUL, 0);
    known.rest = 0;
  }

  /** About the token `i` of the last continuation. */
  #learn({ acceptance, found }: Known, i: number, isAccepted: boolean): void {
    const length = found!.length + i;
    const share = found!.shares[i]!;
    acceptance.observe(length, isAccepted, share);
    this.#typical.observe(length, isAccepted, share);
  }
}

/** Each accepted draft makes the match longer by one token. */
function chancesOf({ length, shares }: Continuation, acceptance: Acceptance): number[] {
  const chances: number[] = [];
  let chance = 1;
  for (let i = 0; i < shares.length; i++) {
    chance *= Math.min(shares[i]! * acceptance.probability(length + i), 1);
    if (chance < CHANCE_MIN) break;
    chances.push(chance);
  }
  return chances;
}

const CHANCE_MIN = 0.05;
/** A search in so many steps, after 0, 16, 32 and 48 fruitless searches. */
const STEPS_BETWEEN: readonly number[] = [1, 2, 4, 8];
const SEARCHES_EACH = 16;
const FRUITLESS_MAX = SEARCHES_EACH * (STEPS_BETWEEN.length - 1);
/** A match that was right counts as so many fruitless searches. */
const FRUITFUL = 32;
const nothing: readonly never[] = [];
const isFound = (continuation: Continuation | undefined): boolean => continuation !== undefined;
