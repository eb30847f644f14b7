import { defineError, type KvasirError } from '../base/errors.ts';

/** Errors that refuse or end a request, in every API. */
export const invalidParameter = defineError(
  'KVASIR_INVALID_PARAMETER',
  '`{parameter}` must be {expected}, got {actual}.',
  400,
);
/** OpenAI's and vLLM's words: by these, and by the code that the API sends, agents know that they must shorten the conversation. */
export const promptTooLong = defineError(
  'KVASIR_PROMPT_TOO_LONG',
  "This model's maximum context length is {maxModelLen} tokens. However, you requested {requested}. {remedy}, or start with a larger --max-model-len.",
  400,
);

/** The fields of `promptTooLong`. */
interface TokensOfRequest {
  readonly promptTokens: number;
  /** The prompt may have more tokens: not all of it was tokenized. */
  readonly isLeast?: boolean;
  readonly maxModelLen: number;
  /** What the caller asked for. */
  readonly maxTokens?: number | undefined;
  /** An input of an embedding has no output. */
  readonly isEmbedding?: boolean;
}

/** `promptTooLong` in the words of the request. */
export function tooManyTokens({ isLeast = false, isEmbedding = false, ...tokens }: TokensOfRequest): KvasirError {
  const { promptTokens, maxTokens } = tokens;
  const least = isLeast ? 'at least ' : '';
  const fields = { ...tokens, isLeast };
  if (isEmbedding) {
    const requested = `${least}${promptTokens} tokens in the input`;
    return promptTooLong({ ...fields, requested, remedy: 'Reduce the length of the input' });
  }
  const output = Math.max(1, maxTokens ?? 1);
  const requested = `${least}${promptTokens + output} tokens (${promptTokens} in the prompt, ${output} in the completion)`;
  return promptTooLong({ ...fields, requested, remedy: 'Reduce the length of the messages or completion' });
}
export const promptEmpty = defineError('KVASIR_PROMPT_EMPTY', 'The prompt is empty. Send at least one token.', 400);
export const queueFull = defineError(
  'KVASIR_QUEUE_FULL',
  'The queue is full ({waiting} requests wait; the limit is {limit}). Try again later.',
  503,
  { retryable: true },
);
export const engineClosed = defineError(
  'KVASIR_ENGINE_CLOSED',
  'The engine is shutting down. Send the request again after the restart.',
  503,
  {
    retryable: true,
  },
);
export const kvLoadFailed = defineError(
  'KVASIR_KV_LOAD_FAILED',
  'KV cache that this request needs could not be loaded, and kv_load_failure_policy is fail. Send the request again, or start with the policy recompute, which computes the invalid KV again.',
  500,
  { retryable: true },
);
