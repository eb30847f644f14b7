import type { RequestState } from '../request-state.ts';

/**
 * Bounds what speculation can lose if predicted chances and prices are wrong: by measurement, the time of all steps with drafts is
 * compared with the time that their tokens would have taken without drafts.
 *
 * A share of all decode time may be lost. What the drafts of a request gain fills the common budget, and the rest belongs to that
 * request. So the loss of all requests together is at most this share plus `COMMON_MAX` steps, as far as the time of steps without drafts is
 * predicted rightly and no debt is forgotten (`DEBT_MAX`). Each request can spend its own gain.
 * With a debt, there are drafts only where their expected gain is larger than the debt, or than `GAIN_REQUIRED_MAX`.
 *
 * The unit is the duration of the current step without drafts.
 */
export class DraftBudget {
  #common = COMMON_MAX;
  /** Entries end with their requests. */
  readonly #own = new WeakMap<RequestState, number>();
  /** Of the last step with drafts, per draft and per token. */
  #lossPerDraft = 0;
  #gainPerToken = 0;

  /** Called after each step of decodes only. */
  stepEnded(): void {
    this.#add(SHARE);
  }

  /** A step with drafts, and the drafting, took so much longer than a step without drafts. Then `verified` is called. */
  spentOnDrafts(lost: number, draftTokens: number, decodes: number): void {
    this.#lossPerDraft = lost / draftTokens;
    this.#gainPerToken = 1 / decodes;
  }

  /** A draft model took time, and none of its drafts was verified. */
  spentOnDrafting(lost: number): void {
    this.#add(-Math.min(lost, DRAFTING_MAX));
  }

  /** For each request with drafts in the last step. `tokens`: output tokens that the step gave to it. */
  verified(state: RequestState, drafted: number, tokens: number): void {
    const gain = Math.max(tokens - 1, 0) * this.#gainPerToken - drafted * this.#lossPerDraft;
    const own = this.#own.get(state) ?? 0;
    if (gain > 0) {
      const toCommon = Math.min(gain, COMMON_MAX - this.#common);
      this.#common += toCommon;
      this.#own.set(state, own + gain - toCommon);
    } else {
      const fromOwn = Math.min(own, -gain);
      this.#own.set(state, own - fromOwn);
      this.#add(gain + fromOwn);
    }
  }

  /** How much the drafts of these requests must gain: 0 if their budget is not used up. */
  gainRequired(states: Iterable<RequestState>): number {
    let budget = this.#common;
    for (const state of states) budget += this.#own.get(state) ?? 0;
    return Math.min(Math.max(-budget, 0), GAIN_REQUIRED_MAX);
  }

  #add(amount: number): void {
    this.#common = Math.min(Math.max(this.#common + amount, -DEBT_MAX), COMMON_MAX);
  }
}

/** The share of decode time that may be lost. */
const SHARE = 0.005;
/** About the price of one or two steps with rejected drafts on a small model. */
const COMMON_MAX = 2;
/** More debt is forgotten. */
const DEBT_MAX = 30;
/** Texts that repeat give more, so that they have drafts again with any debt. */
const GAIN_REQUIRED_MAX = 5;
/** More is a pause of the process. */
const DRAFTING_MAX = 2;
