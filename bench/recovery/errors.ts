import { defineError } from '../../src/base/errors.ts';

export const serverEnded = defineError(
  'KVASIR_BENCH_SERVER_ENDED',
  'The server that the bench started has ended: {reason}',
  500,
);
export const requestRefused = defineError(
  'KVASIR_BENCH_REQUEST_REFUSED',
  'The server answered a request of the bench with status {status}: {body}',
  500,
);
export const blocksNotStored = defineError(
  'KVASIR_BENCH_BLOCKS_NOT_STORED',
  'The store has {stored} of the {wanted} blocks of the workload. Use a disk with more room, or fewer and shorter requests.',
  500,
);
