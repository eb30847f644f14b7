import { defineError } from '../../base/errors.ts';

export const statesUnsupported = defineError(
  'KVASIR_DEMO_STATES_UNSUPPORTED',
  'The minimum of recomputed tokens is not known for {model}, because some of its layers have a recurrent state. Use --model with a model whose layers all have attention.',
  400,
);
