import type { SampledToken } from '../../core/step.ts';
import type { StepLoad } from '../pace.ts';
import type { RequestState } from '../request-state.ts';
import { Acceptance, typicalAcceptance } from './acceptance.ts';
import { chooseDrafts } from './choose-drafts.ts';
import { DraftCost } from './draft-cost.ts';
import type { OwnTextOptions } from './options.ts';
import type { Speculator } from './speculator.ts';
import { copyFrom, TextIndex } from './text-index.ts';

/** What the speculator knows of one request. */
interface Known {
  readonly index: TextIndex;
  readonly acceptance: Acceptance;
  /** The length of the match from which the last drafts were taken. */
  matchLength: number;
}

/**
 * Drafts from the request's own text: where the last tokens occurred before, the text continues the same way (prompt
 * lookup). The number of drafts follows their chances and the measured time of further rows.
 */
export class OwnTextSpeculator implements Speculator {
  readonly #options: OwnTextOptions;
  /** Of all requests: what a new request starts from. */
  readonly #typical = new Acceptance(typicalAcceptance, 16);
  /** Entries end with their requests. */
  readonly #known = new WeakMap<RequestState, Known>();
  readonly #cost = new DraftCost();

  constructor(options: OwnTextOptions) {
    this.#options = options;
  }

  draft(decodes: readonly RequestState[], tokensLeft: number): (Int32Array | undefined)[] {
    const matches = decodes.map((state) => {
      const { index } = this.#knownOf(state);
      return index.find();
    });
    const proposals = matches.map((match, i) => ({
      chances: match === undefined ? nothing : this.#chances(this.#knownOf(decodes[i]!), match.length),
    }));
    if (proposals.every(({ chances }) => chances.length === 0)) return [];
    let context = 0;
    for (const { tokens } of decodes) context += tokens.length;
    const perDraft = context / decodes.length;
    const counts = chooseDrafts(proposals, decodes.length, tokensLeft, (drafts) =>
      this.#cost.msOf({ decodes: decodes.length, decodeContext: context, drafts, draftContext: drafts * perDraft }),
    );
    return decodes.map((state, i) => this.#take(state, matches[i], counts[i]!));
  }

  verified(state: RequestState, drafts: Int32Array, newTokens: readonly SampledToken[]): void {
    const known = this.#knownOf(state);
    for (let i = 0; i < Math.min(drafts.length, newTokens.length); i++) {
      const isAccepted = newTokens[i]!.token === drafts[i];
      known.acceptance.observe(known.matchLength + i, isAccepted);
      this.#typical.observe(known.matchLength + i, isAccepted);
      if (!isAccepted) return;
    }
  }

  observe(load: StepLoad, ms: number | undefined): void {
    this.#cost.observe(load, ms);
  }

  #knownOf(state: RequestState): Known {
    let known = this.#known.get(state);
    if (known === undefined) {
      const { promptLookupMin, promptLookupMax } = this.#options;
      known = {
        index: new TextIndex(state.tokens, promptLookupMin, promptLookupMax),
        acceptance: new Acceptance((length) => this.#typical.probability(length), 3),
        matchLength: 0,
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

  #take(state: RequestState, match: { next: number; length: number } | undefined, count: number) {
    if (match === undefined) return undefined;
    const known = this.#knownOf(state);
    known.matchLength = match.length;
    if (count > 0) return copyFrom(state.tokens.view(), match.next, count);
    known.acceptance.forget(match.length);
    return undefined;
  }
}

const CHANCE_MIN = 0.05;
const nothing: readonly never[] = [];
