import { defineError } from '../../base/errors.ts';

export const stageFailed = defineError('KVASIR_DEMO_STAGE_FAILED', 'The stage "{name}" failed: {reason}', 500);
export const windowsUnsupported = defineError(
  'KVASIR_DEMO_WINDOWS_UNSUPPORTED',
  'The demo cannot show the minimum of recomputed tokens for {model}, because some of its layers have a sliding window or a recurrent state. Use --model with a model whose layers all have full attention.',
  400,
);
export const promptTooShort = defineError(
  'KVASIR_DEMO_PROMPT_TOO_SHORT',
  'Prompt {prompt} has {blocks} blocks of {blockSize} tokens; the demo needs at least {blocksMin}, because some of them fail to load. Use a smaller --block-size.',
  400,
);
