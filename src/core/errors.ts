import { defineError, type KvasirError } from '../base/errors.ts';

/** Errors that refuse or end a request, in every API. */
export const invalidParameter = defineError(
  'KVASIR_INVALID_PARAMETER',
  '`{parameter}` must be {expected}, got {actual}.',
  400,
);
export const promptTooLong = defineError(
  'KVASIR_PROMPT_TOO_LONG',
  'The {input} has {promptTokens} tokens{output}, but the model takes {maxModelLen} tokens in all. Shorten the {input}{orOutput}, or start with a larger --max-model-len.',
  400,
);

interface TokensOfRequest {
  /** A number, or words for one that is not known exactly. */
  readonly promptTokens: number | string;
  readonly maxModelLen: number;
  /** What the caller asked for. */
  readonly maxTokens?: number | undefined;
  /** An input of an embedding has no output. */
  readonly isEmbedding?: boolean;
}

/** `promptTooLong` in the words of the request. */
export function tooManyTokens({ maxTokens, isEmbedding = false, ...tokens }: TokensOfRequest): KvasirError {
  if (isEmbedding) return promptTooLong({ ...tokens, input: 'input', output: '', orOutput: '' });
  const [output, orOutput] =
    maxTokens === undefined
      ? [' and the output needs at least 1', '']
      : [` and max_tokens is ${maxTokens}`, ' or max_tokens'];
  return promptTooLong({ ...tokens, maxTokens, input: 'prompt', output, orOutput });
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
