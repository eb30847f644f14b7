import { defineError } from '../../base/errors.ts';

export const contextNotCached = defineError(
  'KVASIR_BENCH_CONTEXT_NOT_CACHED',
  'The KV pool is too small to keep a context of {depth} tokens. Give more with --kv-cache-memory.',
  500,
);
export const interrupted = defineError('KVASIR_BENCH_INTERRUPTED', 'Interrupted.', 500);
