import { ArcPolicy } from './arc-policy.ts';
import type { EvictionPolicy } from './eviction-policy.ts';
import { LruPolicy } from './lru-policy.ts';

/** The names that the configuration accepts, as in vLLM. */
export const evictionPolicyNames = ['lru', 'arc'] as const;
export type EvictionPolicyName = (typeof evictionPolicyNames)[number];

/** `capacity`: the number of blocks for which the tier has room. */
export function newEvictionPolicy<Name>(name: EvictionPolicyName, capacity: number): EvictionPolicy<Name> {
  return name === 'arc' ? new ArcPolicy(capacity) : new LruPolicy();
}
