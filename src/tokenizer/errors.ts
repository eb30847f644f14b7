import { defineError } from '../base/errors.ts';

export const vocabularyUnsupported = defineError(
  'KVASIR_VOCABULARY_UNSUPPORTED',
  '{path} has a vocabulary of kind {found}; supported: {supported}.',
  500,
);
export const vocabularyInvalid = defineError(
  'KVASIR_VOCABULARY_INVALID',
  '{path} has a damaged vocabulary: {problem}. Download or convert the model again.',
  500,
);
export const chatTemplateMissing = defineError(
  'KVASIR_CHAT_TEMPLATE_MISSING',
  'The model has no chat template. Start with --chat-template <file.jinja>, or use /v1/completions with a finished prompt.',
  400,
);
export const chatTemplateInvalid = defineError(
  'KVASIR_CHAT_TEMPLATE_INVALID',
  'The chat template cannot be parsed: {reason}',
  500,
);
export const chatTemplateFailed = defineError(
  'KVASIR_CHAT_TEMPLATE_FAILED',
  'The chat template does not take these messages: {reason}',
  400,
);
