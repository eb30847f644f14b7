import { outOfNativeMemory } from './errors.ts';

/** JavaScript's error for a buffer that the system has no memory for, as an entry of the catalogue. Other errors stay as they are. */
export function withAllocationFailure(error: unknown, purpose: string, device: string): unknown {
  if (!(error instanceof RangeError) || !error.message.includes('allocation failed')) return error;
  const hint = 'Use a smaller model, a smaller --kv-cache-memory or a smaller --max-num-batched-tokens.';
  return outOfNativeMemory({ amount: 'a buffer', purpose, device, hint }, error);
}
