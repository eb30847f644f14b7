import type { RequestStats } from '../core/request.ts';
import type { PromptTokensDetails } from './openai-types.ts';

/**
 * Prompt tokens that were not computed for this request, in OpenAI's sense: nobody is told that a token was cached which
 * a connector had promised and which was lost and computed after all.
 *
 * `recomputedTokens` also counts what a preemption cost. Where a request had both, the smaller number is told.
 */
export function reusedTokens({
  cachedTokens,
  externalTokens = 0,
  recomputedTokens,
  failedLoads = 0,
}: RequestStats): number {
  return failedLoads === 0 ? cachedTokens : cachedTokens - Math.min(recomputedTokens, externalTokens);
}

/** What the extras say is 0 where they are absent, so that a server without a connector answers as OpenAI does. */
export function promptTokensDetails(details: Required<PromptTokensDetails>): PromptTokensDetails {
  const { cached_tokens, ...extras } = details;
  return { cached_tokens, ...Object.fromEntries(Object.entries(extras).filter(([, count]) => count > 0)) };
}
