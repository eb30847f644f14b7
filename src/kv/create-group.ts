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

/** The number of tokens, at most `most`, of the longest request that the pool can hold. */
export function longestRequest(spec: KvCacheSpec, most: number): number {
  let [fits, tooLong] = [0, most + 1];
  while (tooLong - fits > 1) {
    const middle = Math.floor((fits + tooLong) / 2);
    if (blocksMax(spec, middle) <= spec.blockCount - 1) fits = middle;
    else tooLong = middle;
  }
  return fits;
}
