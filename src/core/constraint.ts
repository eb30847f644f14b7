import type { TokenId } from './ids.ts';

/** Token `t` is bit `t % 32` of word `t >> 5`. Frozen: requests share masks. */
export type TokenMask = Uint32Array;

export const isAllowed = (mask: TokenMask, token: number): boolean => ((mask[token >> 5]! >>> (token & 31)) & 1) === 1;

/** Only while the mask is made. */
export function allow(mask: TokenMask, token: number): void {
  mask[token >> 5] = mask[token >> 5]! | (1 << (token & 31));
}

/** A place in the grammar. Immutable, and a function of the grammar and the output tokens only. */
export type ConstraintState = object;

/**
 * Restricts the tokens of an output, for example to those that a JSON schema allows. All functions are synchronous and
 * pure: equal output tokens give equal masks, also after a preemption or a restart of a rank. For positions after draft
 * tokens, `advance` from the last state.
 */
export interface OutputConstraint {
  /** Before the first output token. */
  readonly start: ConstraintState;
  /** Undefined if the grammar does not allow the token. Not called for tokens that end the output. */
  advance(state: ConstraintState, token: TokenId): ConstraintState | undefined;
  /**
   * The tokens that may come next, with the EOS tokens if the output may end here. `avoidEnd`: without the EOS tokens
   * if any other token is allowed. All zero if no token of the vocabulary fits.
   */
  allowedTokens(state: ConstraintState, avoidEnd: boolean): TokenMask;
  /** Whether nothing but an EOS token can follow. */
  isComplete(state: ConstraintState): boolean;
}
