import { KvasirError } from '../../base/errors.ts';
import type { TokenMask } from '../../core/constraint.ts';
import type { Sample, SampledToken, SequencePlan } from '../../core/step.ts';
import { TokenBuffer } from '../../core/tokens.ts';

/**
 * Samples after the last token, and after each draft that equals the token sampled for its position. Each token is
 * sampled as in a step of its own, so drafts change no token. `sampleAt`: samples from the row of the last token (0) or
 * of a draft (from 1 on), after the tokens `before`, among the `allowed` tokens.
 */
export function sampleWithDrafts(
  { tokens, allowed, drafts }: Pick<SequencePlan, 'tokens' | 'allowed' | 'drafts'>,
  sampleAt: (row: number, before: TokenBuffer, allowed: TokenMask | undefined) => SampledToken,
): Sample {
  const first = sampleAt(0, tokens, allowed);
  if (drafts === undefined || first.token !== drafts.tokens[0]) return first;
  // Penalties and random numbers need the accepted drafts, and the request's own tokens must not change here.
  const before = new TokenBuffer(tokens.view(), tokens.length + drafts.tokens.length);
  const further: SampledToken[] = [];
  let last = first;
  for (const [draft, token] of drafts.tokens.entries()) {
    if (last.token !== token) break;
    before.push(last.token);
    try {
      last = sampleAt(draft + 1, before, drafts.allowed?.[draft]);
    } catch (error) {
      // The next step computes this row again, as the row of the last token, and reports the failure.
      if (!(error instanceof KvasirError)) throw error;
      break;
    }
    further.push(last);
  }
  return further.length === 0 ? first : { ...first, further };
}
