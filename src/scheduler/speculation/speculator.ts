import type { SampledToken } from '../../core/step.ts';
import type { StepLoad } from '../pace.ts';
import type { RequestState } from '../request-state.ts';

/**
 * Proposes draft tokens for steps of decodes. Drafts decide how much a step computes, and never which tokens come out:
 * a draft counts only if it equals the token that is sampled for its position.
 */
export interface Speculator {
  /**
   * Called once per step that has decodes only. Parallel to `decodes`: guesses of the tokens that follow. The step takes
   * as many as the request, the budget of `tokensLeft` tokens and the pool allow.
   */
  draft(decodes: readonly RequestState[], tokensLeft: number): readonly (Int32Array | undefined)[];
  /** Called for each request whose drafts a step has computed. `newTokens`: those that the step added; may be none. */
  verified(state: RequestState, drafts: Int32Array, newTokens: readonly SampledToken[]): void;
  /** Called after each step. `ms` is undefined if its duration is not only computing. */
  observe(load: StepLoad, ms: number | undefined): void;
}
