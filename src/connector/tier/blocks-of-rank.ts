import { type BlockKey, groupOfKey } from '../block-key.ts';
import type { KvIdentity } from '../connector.ts';

/**
 * Whether a rank has KV in the block with this key. A pipeline rank may have no layer of a KV group. On this rank, blocks
 * of the group are neither stored, looked up nor loaded, and count as present. So a block is stored if all ranks that have
 * KV in it have stored their parts.
 */
export function hasKvOn({ groups }: Pick<KvIdentity, 'groups'>): (key: BlockKey) => boolean {
  const empty = new Set([...groups.keys()].filter((group) => groups[group]!.layers.length === 0));
  if (empty.size === 0) return () => true;
  return (key) => !empty.has(groupOfKey(key));
}
