import { defineError, KvasirError } from '../../../base/errors.ts';

export const responseNotFound = defineError(
  'KVASIR_RESPONSE_NOT_FOUND',
  'There is no response `{id}`. It was not stored, was deleted, or was removed to make room for newer responses.',
  404,
);
export const previousResponseNotFound = defineError(
  'KVASIR_PREVIOUS_RESPONSE_NOT_FOUND',
  'There is no response `{id}` to continue. It was not stored, was deleted, or was removed to make room for newer responses. Send the whole conversation as `input`.',
  400,
);
export const itemNotFound = defineError(
  'KVASIR_ITEM_NOT_FOUND',
  'There is no stored item `{id}`. Send the item itself instead of a reference.',
  400,
);
export const responseNotUsable = defineError(
  'KVASIR_RESPONSE_NOT_USABLE',
  'The response `{id}` is {status}, so it cannot be {action}. {remedy}',
  400,
);

/** Names of the chat endpoint, and what a request for a response calls the same thing. */
const names: readonly (readonly [chat: RegExp, response: string])[] = [
  [/^response_format(\.json_schema)?/, 'text.format'],
  [/^max_completion_tokens$/, 'max_output_tokens'],
  [/^reasoning_effort$/, 'reasoning.effort'],
  [/^tools\[(\d+)\]\.function\b/, 'tools[$1]'],
  [/^tool_choice\.function\b/, 'tool_choice'],
  [/^messages$/, 'input'],
];

/** An error about a field of a chat request as an error about the field of the response's request. */
export function withResponseNames(error: unknown): unknown {
  if (!(error instanceof KvasirError) || typeof error.fields.parameter !== 'string') return error;
  const { code, httpStatus, retryable, fields } = error;
  const before = error.fields.parameter;
  const parameter = names.reduce((name, [chat, response]) => name.replace(chat, response), before);
  if (parameter === before) return error;
  const template = error.message.replaceAll(`\`${before}\``, `\`${parameter}\``);
  return new KvasirError({ code, template, httpStatus, retryable }, { ...fields, parameter }, error);
}
