import type { ErrorAnswer, TokensOfRequest } from '../../http/server-errors.ts';
import type { MessageError } from './message-types.ts';

const typesByStatus: Readonly<Record<number, string>> = {
  401: 'authentication_error',
  403: 'permission_error',
  404: 'not_found_error',
  413: 'request_too_large',
  429: 'rate_limit_error',
  503: 'overloaded_error',
};

/** An error in Anthropic's form. */
export const messageError = ({ status, tooLong, body: { error } }: ErrorAnswer): MessageError => ({
  type: 'error',
  error: {
    type: typesByStatus[status] ?? (status >= 500 ? 'api_error' : 'invalid_request_error'),
    message: tooLong === undefined ? error.message : tooLongMessage(tooLong),
  },
});

/**
 * Anthropic's words, by which agents know that they must shorten the conversation. If only the output has no room, its other words come too:
 * Claude Code then lowers `max_tokens`, and shortens the conversation if that is not enough.
 */
function tooLongMessage({ promptTokens, maxTokens, maxModelLen }: TokensOfRequest): string {
  const remedy = 'Shorten the conversation, or start the server with a larger context (--max-model-len).';
  if (promptTokens > maxModelLen)
    return `prompt is too long: ${promptTokens} tokens > ${maxModelLen} maximum. ${remedy}`;
  const output = Math.max(1, maxTokens ?? 1);
  const room = `${promptTokens} tokens > ${Math.max(0, maxModelLen - output)} maximum`;
  const sum = `input length and \`max_tokens\` exceed context limit: ${promptTokens} + ${output} > ${maxModelLen}`;
  return `prompt is too long: ${room}, because ${sum}. Decrease \`max_tokens\`. ${remedy}`;
}
