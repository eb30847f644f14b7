import { type ErrorFields, KvasirError } from '../base/errors.ts';

/** An error as data, from which another process makes an equal error. */
export type ErrorMessage =
  | {
      readonly kind: 'kvasir';
      readonly code: string;
      readonly message: string;
      readonly httpStatus: number;
      readonly retryable: boolean;
      readonly fields: ErrorFields;
      readonly cause?: ErrorMessage;
    }
  | {
      readonly kind: 'other';
      readonly name: string;
      readonly message: string;
      readonly stack?: string;
      readonly cause?: ErrorMessage;
    };

export function encodeError(error: unknown): ErrorMessage {
  if (!(error instanceof Error)) return { kind: 'other', name: 'Error', message: String(error) };
  const { message, name, stack } = error;
  const cause = error.cause === undefined ? {} : { cause: encodeError(error.cause) };
  if (error instanceof KvasirError) {
    const { code, httpStatus, retryable, fields } = error;
    return { kind: 'kvasir', code, message, httpStatus, retryable, fields, ...cause };
  }
  return { kind: 'other', name, message, ...(stack === undefined ? {} : { stack }), ...cause };
}

/** A KvasirError becomes a KvasirError. Other errors become an Error with the original name and stack. */
export function decodeError(data: ErrorMessage): Error {
  const cause = data.cause === undefined ? undefined : decodeError(data.cause);
  if (data.kind === 'kvasir') {
    const { code, httpStatus, retryable, fields, message } = data;
    const error = new KvasirError({ code, httpStatus, retryable, template: '' }, fields, cause);
    // The message is complete. Filling the template again would replace braces in the values.
    error.message = message;
    return error;
  }
  const error = new Error(data.message, cause === undefined ? undefined : { cause });
  if (data.name !== 'Error') error.name = data.name;
  if (data.stack !== undefined) error.stack = data.stack;
  return error;
}
