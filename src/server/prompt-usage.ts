import type { PromptTokensDetails } from './openai-types.ts';

/** Leaves out extra fields of value 0, so that a server without a connector answers as OpenAI does. */
export function promptTokensDetails(details: Required<PromptTokensDetails>): PromptTokensDetails {
  const { cached_tokens, loaded_tokens, ...extras } = details;
  return {
    cached_tokens,
    ...Object.fromEntries(Object.entries(extras).filter(([, count]) => count > 0)),
    ...(Object.keys(loaded_tokens).length === 0 ? {} : { loaded_tokens }),
  };
}
