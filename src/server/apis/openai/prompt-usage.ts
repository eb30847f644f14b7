import type { RequestUsage } from '../../generation/renderer.ts';
import type { PromptTokensDetails, Usage } from './types.ts';

/** Leaves out extra fields of value 0, so that a server without a connector answers as OpenAI does. */
export function promptTokensDetails(details: Required<PromptTokensDetails>): PromptTokensDetails {
  const { cached_tokens, loaded_tokens, ...extras } = details;
  return {
    cached_tokens,
    ...Object.fromEntries(Object.entries(extras).filter(([, count]) => count > 0)),
    ...(Object.keys(loaded_tokens).length === 0 ? {} : { loaded_tokens }),
  };
}

/** The tokens of a request as OpenAI's API writes them. */
export function openAiUsage(used: RequestUsage): Usage {
  const { promptTokens, outputTokens, draftedTokens, acceptedTokens } = used;
  const drafts = {
    accepted_prediction_tokens: acceptedTokens,
    rejected_prediction_tokens: draftedTokens - acceptedTokens,
  };
  return {
    prompt_tokens: promptTokens,
    completion_tokens: outputTokens,
    total_tokens: promptTokens + outputTokens,
    prompt_tokens_details: promptTokensDetails({
      cached_tokens: used.cachedTokens,
      external_tokens: used.externalTokens,
      recomputed_tokens: used.recomputedTokens,
      failed_loads: used.failedLoads,
      loaded_tokens: used.loadedTokens,
    }),
    ...(draftedTokens === 0 ? {} : { completion_tokens_details: drafts }),
  };
}
