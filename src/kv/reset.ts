import type { BlockId } from '../core/ids.ts';
import type { KvParts } from './kv-parts.ts';

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
