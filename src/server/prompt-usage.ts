import type { RequestStats } from '../core/request.ts';
import type { PromptTokensDetails } from './openai-types.ts';

/**
 * Prompt tokens that were not computed for this request: OpenAI's cached tokens. A token that a connector promised does
 * not count if its load failed and the token was computed.
 *
 * `recomputedTokens` also counts tokens computed again after a preemption. If a request had both, the result may be too
 * small.
 */
export function reusedTokens({
  cachedTokens,
  externalTokens = 0,
  recomputedTokens,
  failedLoads = 0,
}: RequestStats): number {
  return failedLoads === 0 ? cachedTokens : cachedTokens - Math.min(recomputedTokens, externalTokens);
}

/** Leaves out extra fields of value 0, so that a server without a connector answers as OpenAI does. */
export function promptTokensDetails(details: Required<PromptTokensDetails>): PromptTokensDetails {
  const { cached_tokens, loaded_tokens, ...extras } = details;
  return {
    cached_tokens,
    ...Object.fromEntries(Object.entries(extras).filter(([, count]) => count > 0)),
    ...(Object.keys(loaded_tokens).length === 0 ? {} : { loaded_tokens }),
  };
}
