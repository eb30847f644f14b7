import { type BlockId, blockIndex } from '../core/ids.ts';
import type { KvParts } from './kv-parts.ts';
import { type ContentKey, contentKey } from './pinned-prefixes.ts';

/**
 * Removes the blocks that no request and no transfer uses from the prefix cache. Returns how many blocks stay cached. O(blocks).
 * `isAll`: if none stays, the event log gets one event for all blocks.
 */
export function resetPrefixCache({ cached, pool, events }: KvParts, isAll: boolean): number {
  const evictUnused = (): void => {
    for (let id = 1; id < pool.blockCount; id++) {
      const block = id as BlockId;
      if (cached.has(block) && pool.isAvailable(block)) pool.evict(block);
    }
  };
  if (events !== undefined && isAll && pool.cached === cached.size) events.clearing(evictUnused);
  else evictUnused();
  return cached.size;
}

/**
 * Removes the blocks with these keys from the prefix cache. Blocks that a request or a transfer uses stay; `inUse` counts them.
 * O(blocks).
 */
export function removeCached(
  { cached, pool }: KvParts,
  keys: ReadonlySet<ContentKey>,
): { readonly removed: readonly BlockId[]; readonly inUse: number } {
  const removed: BlockId[] = [];
  let inUse = 0;
  for (let id = 1; id < pool.blockCount; id++) {
    const block = id as BlockId;
    const group = cached.groupOf(block);
    if (group === undefined || !keys.has(contentKey(group, cached.digestOf(block), blockIndex(0)))) continue;
    if (pool.isAvailable(block)) {
      pool.evict(block);
      removed.push(block);
    } else inUse++;
  }
  return { removed, inUse };
}
