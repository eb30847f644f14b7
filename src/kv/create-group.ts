import type { KvCacheSpec, KvGroupSpec } from '../core/kv-spec.ts';
import type { KvGroup } from './group.ts';
import { FullGroup } from './group-full.ts';
import { StateGroup } from './group-state.ts';
import { WindowGroup } from './group-window.ts';

export function createGroup(spec: KvGroupSpec): KvGroup {
  switch (spec.kind) {
    case 'full':
      return new FullGroup(spec);
    case 'window':
      return new WindowGroup(spec);
    case 'state':
      return new StateGroup(spec);
  }
}

/** The largest number of blocks that a request needs at one time while it computes `tokenCount` tokens. */
export function blocksMax(spec: KvCacheSpec, tokenCount: number): number {
  return spec.groups.reduce((sum, group) => sum + createGroup(group).blocksMax(tokenCount), 0);
}
