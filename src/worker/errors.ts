import { defineError } from '../base/errors.ts';

export const workerStartFailed = defineError(
  'KVASIR_WORKER_START_FAILED',
  'The worker process of {rank} {reason} before it was ready. Look for the cause in the log, then start again.',
  500,
);

export const workerGone = defineError(
  'KVASIR_WORKER_GONE',
  'The worker process of {rank} {reason}. It is not started again, because it ended {starts} times and served steps for only {seconds} s in between. Look for the cause in the log, then start again.',
  500,
);

export const workerChanged = defineError(
  'KVASIR_WORKER_CHANGED',
  'The worker process of {rank} restarted with another model or another KV cache, perhaps because the model file has changed. Start again with one complete model file.',
  500,
);

export const ranksDiffer = defineError(
  'KVASIR_RANKS_DIFFER',
  'The ranks would compute different KV: the model file has changed between two of them, or one has a kernel that another does not have. Start again; a warning names the missing kernel.',
  500,
);

export const tooManyRanks = defineError(
  'KVASIR_TOO_MANY_RANKS',
  'pipelineParallelSize is {ranks}, and the model has {layers} layers: it must be a whole number from 1 to {layers}.',
  400,
);

export const adapterLost = defineError(
  'KVASIR_ADAPTER_LOST',
  'The LoRA adapter of the request is not in memory any more: a worker process was replaced, and it could not read the file again. Unload the adapter and load it again.',
  409,
);
export const orderLost = defineError(
  'KVASIR_ORDER_LOST',
  'The worker process of {rank} died before it had carried out the order. A part may be done. Ask again when /health says ok.',
  503,
  { retryable: true },
);
