import { defineError } from '../base/errors.ts';

export const vocabularyUnsupported = defineError(
  'KVASIR_VOCABULARY_UNSUPPORTED',
  '{path} has a vocabulary of kind {found}; supported: {supported}. Choose another model.',
  500,
);
export const vocabularyInvalid = defineError(
  'KVASIR_VOCABULARY_INVALID',
  '{path} has a corrupt vocabulary: {problem}. Download or convert the model again.',
  500,
);
export const chatTemplateInvalid = defineError(
  'KVASIR_CHAT_TEMPLATE_INVALID',
  'The chat template cannot be parsed: {reason}. Correct the template, or start with another --chat-template.',
  500,
);
export const chatTemplateFailed = defineError(
  'KVASIR_CHAT_TEMPLATE_FAILED',
  'The chat template does not accept these messages: {reason}. Change the messages, or start with another --chat-template.',
  400,
);
export const chatTemplateBroken = defineError(
  'KVASIR_CHAT_TEMPLATE_BROKEN',
  'The chat template fails on these messages: {reason}. It may not know a field or a form of them. Send simpler messages, or start with another --chat-template.',
  400,
);
export const chatTemplateUnknown = defineError(
  'KVASIR_CHAT_TEMPLATE_UNKNOWN',
  'There is no chat template {name}: no file has this path, and the templates of the model are: {names}. Give one of these names, or a file.',
  500,
);
