import { outOfNativeMemory } from './errors.ts';

/**
 * Turns JavaScript's error for a failed allocation of a buffer into an error of the catalogue. Returns other errors.
 */
export function withAllocationFailure(error: unknown, purpose: string, device: string): unknown {
  if (!(error instanceof RangeError) || !error.message.includes('allocation failed')) return error;
  const hint = 'Use a smaller model, a smaller --kv-cache-memory or a smaller --max-num-batched-tokens.';
  return outOfNativeMemory({ amount: 'a buffer', purpose, device, hint }, error);
}
