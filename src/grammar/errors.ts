import { defineError } from '../base/errors.ts';

export const grammarUnsupported = defineError(
  'KVASIR_GRAMMAR_UNSUPPORTED',
  '`{parameter}` cannot be compiled: {problem}.',
  400,
);
export const grammarTooLarge = defineError(
  'KVASIR_GRAMMAR_TOO_LARGE',
  '`{parameter}` is too large: {problem}. Send a smaller one.',
  400,
);
