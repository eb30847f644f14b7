import { assert } from '../src/base/assert.ts';
import type { ConstraintState, OutputConstraint, TokenMask } from '../src/core/constraint.ts';
import type { TokenId } from '../src/core/ids.ts';
import type { SequencePlan } from '../src/core/step.ts';

/** A place in the grammar: the output tokens before it. */
class Place {
  readonly tokens: readonly number[];

  constructor(tokens: readonly number[]) {
    this.tokens = tokens;
  }
}

/** The output tokens for which a mask was made. */
const tokensOfMask = new WeakMap<TokenMask, readonly number[]>();

/** A grammar that allows all tokens, and notes for which output each mask was made. */
export function notedConstraint(vocabSize: number): OutputConstraint {
  const tokensOf = (state: ConstraintState): readonly number[] => (state as Place).tokens;
  return {
    start: new Place([]),
    advance: (state: ConstraintState, token: TokenId) => new Place([...tokensOf(state), token]),
    allowedTokens: (state: ConstraintState) => {
      const mask = new Uint32Array(Math.ceil(vocabSize / 32)).fill(0xffffffff);
      tokensOfMask.set(mask, tokensOf(state));
      return mask;
    },
    isComplete: () => false,
  };
}

/** The masks of a step belong to the output tokens before them, also after preemptions, recoveries and drafts. */
export function checkMasks({ requestId, tokens, sample, allowed, drafts }: SequencePlan): void {
  if (allowed === undefined || sample === undefined) return;
  const output = Array.from(tokens.view().subarray(sample.promptLength));
  assertMaskOf(allowed, output, requestId);
  if (drafts === undefined) return;
  assert(drafts.allowed?.length === drafts.tokens.length, `request ${requestId} has a mask after each draft`);
  for (const [i, mask] of drafts.allowed.entries())
    assertMaskOf(mask, [...output, ...drafts.tokens.subarray(0, i + 1)], requestId);
}

function assertMaskOf(mask: TokenMask, output: readonly number[], request: string): void {
  const tokens = tokensOfMask.get(mask);
  const isEqual = tokens?.length === output.length && tokens.every((token, i) => token === output[i]);
  if (!isEqual) assert(false, `the mask of request ${request} is for ${tokens}, and its output is ${output}`);
}
