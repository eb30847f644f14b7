import { assert } from '../base/assert.ts';
import type { KvCacheSpec, KvGroupSpec } from '../core/kv-spec.ts';
import type { KvGroup } from './group.ts';
import { FullGroup } from './group-full.ts';

export function createGroup(spec: KvGroupSpec, index: number): KvGroup {
  assert(spec.kind === 'full', `KV groups of kind ${spec.kind} are not supported`);
  return new FullGroup(index, spec);
}

/** Pages that a request holds at most while `tokenCount` tokens are computed. */
export function pagesMax(spec: KvCacheSpec, tokenCount: number): number {
  return spec.groups.reduce((sum, group, index) => sum + createGroup(group, index).pagesMax(tokenCount), 0);
}
