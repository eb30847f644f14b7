import { defineError } from '../../base/errors.ts';

export const promptTooShort = defineError(
  'KVASIR_DEMO_PROMPT_TOO_SHORT',
  'Prompt {prompt} has {blocks} blocks of {blockSize} tokens; the demo needs at least {blocksMin}, because some of them fail to load. Use a smaller --block-size.',
  400,
);
