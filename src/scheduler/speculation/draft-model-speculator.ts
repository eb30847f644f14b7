import { assert } from '../../base/assert.ts';
import type { TokenId } from '../../core/ids.ts';
import type { SampledToken } from '../../core/step.ts';
import type { RequestState } from '../request-state.ts';
import type { StepLoad } from '../step-load.ts';
import { Acceptance } from './acceptance.ts';
import { GAIN_MIN } from './choose-drafts.ts';
import { DraftPrices } from './draft-prices.ts';
import type { DraftOrder, Speculator } from './speculator.ts';

interface Draft {
  /** The number of the request's tokens that the draft follows. */
  readonly length: number;
  readonly tokens: Int32Array;
}

/**
 * Drafts from a small model with the same vocabulary. Before each step of decodes, the model drafts as many tokens as give the most
 * expected tokens per millisecond, with the time of both models. No draft is made where that is none.
 */
export class DraftModelSpeculator implements Speculator {
  readonly #countMax: number;
  readonly #prices = new DraftPrices();
  /** Of all requests: what a new request starts from. By position in the draft, from 1. */
  readonly #typical = new Acceptance({ probability: () => TYPICAL_ACCEPTANCE, weight: 8, isForgotten: true });
  /** Entries end with their requests. */
  readonly #acceptances = new WeakMap<RequestState, Acceptance>();
  #ordered: readonly RequestState[] = nothing;
  #count = 0;
  readonly #drafts = new Map<RequestState, Draft>();
  /** Milliseconds of the draft model for one more token of each request; undefined: not measured. */
  #msPerDraft: number | undefined;

  constructor(countMax: number) {
    this.#countMax = countMax;
  }

  orderDrafts(decodes: readonly RequestState[]): DraftOrder | undefined {
    this.#drafts.clear();
    this.#count = this.#countWorth(decodes);
    if (this.#count === 0) return undefined;
    this.#ordered = decodes;
    return {
      requests: decodes.map(({ request, tokens }) => ({ id: request.id, text: tokens.view() })),
      count: this.#count,
    };
  }

  takeDrafts(drafts: readonly Int32Array[], ms: number): void {
    assert(drafts.length === this.#ordered.length, 'a draft for each ordered request');
    for (const [i, state] of this.#ordered.entries()) this.#take(state, drafts[i]!);
    // A pause of the process is no property of the model.
    this.#prices.spent(Math.min(ms, PAUSE_RATIO * this.#count * (this.#msPerDraft ?? ms)));
    if (drafts.every(({ length }) => length > 0)) this.#measured(ms / this.#count);
    this.#ordered = nothing;
  }

  draft(decodes: readonly RequestState[], tokensLeft: number): (Int32Array | undefined)[] {
    const drafts = decodes.map((state) => {
      const draft = this.#drafts.get(state);
      return draft?.length === state.tokens.length ? draft.tokens : noTokens;
    });
    this.#drafts.clear();
    if (drafts.every(({ length }) => length === 0)) return [];
    const proposals = drafts.map(({ length }, i) => ({ chances: this.#chances(decodes[i]!, length) }));
    const counts = this.#prices.choose(decodes, proposals, tokensLeft);
    return drafts.map((tokens, i) => (counts[i] === 0 ? undefined : tokens.subarray(0, counts[i])));
  }

  verified(state: RequestState, drafts: Int32Array, newTokens: readonly SampledToken[]): void {
    this.#prices.verified(state, drafts.length, newTokens.length);
    for (let i = 0; i < Math.min(drafts.length, newTokens.length); i++) {
      const isAccepted = newTokens[i]!.token === drafts[i];
      this.#observe(state, i + 1, isAccepted);
      if (!isAccepted) return;
    }
  }

  observe(load: StepLoad, ms: number | undefined): void {
    this.#prices.observe(load, ms);
  }

  #take(state: RequestState, tokens: Int32Array): void {
    if (tokens.length === 0) return;
    // No step verifies what the grammar forbids.
    if (state.forbids(tokens[0] as TokenId)) this.#observe(state, 1, false);
    else this.#drafts.set(state, { length: state.tokens.length, tokens });
  }

  #observe(state: RequestState, position: number, isAccepted: boolean): void {
    this.#acceptanceOf(state).observe(position, isAccepted);
    this.#typical.observe(position, isAccepted);
  }

  #acceptanceOf(state: RequestState): Acceptance {
    let acceptance = this.#acceptances.get(state);
    if (acceptance === undefined) {
      acceptance = new Acceptance({
        probability: (position) => this.#typical.probability(position),
        weight: 3,
        isForgotten: false,
      });
      this.#acceptances.set(state, acceptance);
    }
    return acceptance;
  }

  /** How many drafts for each request are worth their time in both models. After many steps without drafts, one is tried. */
  #countWorth(decodes: readonly RequestState[]): number {
    if (this.#prices.isPlainStepDue) return 0;
    if (this.#msPerDraft === undefined) return this.#countMax;
    const { msOf, believed, gainMinMs } = this.#prices.of(decodes, decodes);
    const chances = decodes.map((state) => this.#chances(state, this.#countMax));
    const plainMs = msOf(0);
    const msPerDraft = believed(this.#msPerDraft, TYPICAL_DRAFT * plainMs);
    let tokens = decodes.length;
    let best = (GAIN_MIN * tokens) / plainMs;
    let count = 0;
    for (let i = 0; i < this.#countMax; i++) {
      for (const ofRequest of chances) tokens += ofRequest[i]!;
      const ms = msOf((i + 1) * decodes.length) + (i + 1) * msPerDraft;
      const gainMs = (tokens / decodes.length) * plainMs - ms;
      if (tokens / ms > best && gainMs >= gainMinMs) [best, count] = [tokens / ms, i + 1];
    }
    if (count === 0) this.#notTried(decodes);
    return count;
  }

  #notTried(decodes: readonly RequestState[]): void {
    this.#prices.notTried();
    this.#typical.forget(1);
    for (const state of decodes) this.#acceptanceOf(state).forget(1);
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

  #measured(msPerDraft: number): void {
    this.#msPerDraft = this.#msPerDraft === undefined ? msPerDraft : 0.8 * this.#msPerDraft + 0.2 * msPerDraft;
  }
}

const TYPICAL_ACCEPTANCE = 0.7;
/** The time for a draft, in steps of the large model. */
const TYPICAL_DRAFT = 1 / 8;
/** Drafts count as at most this multiple of their usual duration. */
const PAUSE_RATIO = 4;
const noTokens = new Int32Array(0);
const nothing: readonly never[] = [];
