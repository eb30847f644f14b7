import type { ErrorAnswer } from '../server-errors.ts';
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
export const messageError = ({ status, body: { error } }: ErrorAnswer): MessageError => ({
  type: 'error',
  error: {
    type: typesByStatus[status] ?? (status >= 500 ? 'api_error' : 'invalid_request_error'),
    message: error.message,
  },
});
