import { defineError } from '../../base/errors.ts';

export const serverEnded = defineError(
  'KVASIR_CHILD_SERVER_ENDED',
  'The server that this command started has ended: {reason}',
  500,
);
export const requestRefused = defineError(
  'KVASIR_CHILD_SERVER_REFUSED',
  'The server that this command started answered a request with status {status}: {body}',
  500,
);
export const blocksNotStored = defineError(
  'KVASIR_BLOCKS_NOT_STORED',
  'The store has {stored} of the {wanted} blocks of the prompts. Use a disk with more room, or fewer and shorter requests.',
  500,
);
