import type { RequestId } from '../../core/ids.ts';
import type { SampledToken } from '../../core/step.ts';
import type { RequestState } from '../request-state.ts';
import type { StepLoad } from '../step-load.ts';

/** What a draft model or a prediction layer should draft before the next plan. */
export interface DraftOrder {
  /** `text`: a view, valid until the next step. */
  readonly requests: readonly { readonly id: RequestId; readonly text: Int32Array }[];
  /** How many tokens after each text. */
  readonly count: number;
}

/**
 * Proposes draft tokens for steps of decodes. Drafts decide how much a step computes, and never which tokens come out:
 * a draft counts only if it equals the token that is sampled for its position.
 */
export interface Speculator {
  /** With a draft model: called before a plan if all running requests decode. Undefined: no draft is worth its time. */
  orderDrafts?(decodes: readonly RequestState[]): DraftOrder | undefined;
  /**
   * The drafts of the last order, parallel to its requests; empty where the model has none. `ms`: how long they took. The requests may
   * have ended, and others may have arrived.
   */
  takeDrafts?(drafts: readonly Int32Array[], ms: number): void;
  /**
   * Called once per step that has decodes only. Parallel to `decodes`: drafts of the tokens that follow. The step takes
   * as many as the request, the budget of `tokensLeft` tokens and the pool allow.
   */
  draft(decodes: readonly RequestState[], tokensLeft: number): readonly (Int32Array | undefined)[];
  /** Called for each request whose drafts a step has computed. `newTokens`: those that the step added; may be none. */
  verified(state: RequestState, drafts: Int32Array, newTokens: readonly SampledToken[]): void;
  /** Called once when a request has ended for any reason. Its tokens do not change any more. */
  ended?(state: RequestState): void;
  /** Called after each step. `ms` is undefined if its duration is not only computing. */
  observe(load: StepLoad, ms: number | undefined): void;
}
