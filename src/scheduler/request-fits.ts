import type { KvCacheSpec } from '../core/kv-spec.ts';
import { blocksMax } from '../kv/create-group.ts';
import type { SchedulerOptions } from './contract.ts';

/**
 * Whether a request can run to its end if no other request has blocks, and within the model's length. The engine asks
 * before `add`, because a request that does not fit would wait forever.
 */
export function requestFits(
  spec: KvCacheSpec,
  options: SchedulerOptions,
  promptTokens: number,
  maxTokens: number,
): boolean {
  if (promptTokens < 1 || promptTokens >= options.maxModelLen) return false;
  // The last token is sampled and not computed.
  const computed = Math.min(promptTokens + maxTokens, options.maxModelLen) - 1;
  return blocksMax(spec, Math.max(computed, promptTokens)) <= spec.blockCount - 1;
}
