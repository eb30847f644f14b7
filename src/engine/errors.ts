import { defineError } from '../base/errors.ts';

/** Errors of the engine as a whole. */
export const engineBroken = defineError(
  'KVASIR_ENGINE_BROKEN',
  'The engine stopped after an error: {reason}. Start the engine again.',
  503,
);
export const poolTooSmall = defineError(
  'KVASIR_POOL_TOO_SMALL',
  'The KV pool has {blockCount} blocks, too few for one request of {maxModelLen} tokens. Start with a larger --kv-cache-memory or a smaller --max-model-len.',
  500,
);
export const chatTemplateMissing = defineError(
  'KVASIR_CHAT_TEMPLATE_MISSING',
  'The model {model} has no chat template. Send a completion request, or start with --chat-template.',
  400,
);
