import { type BlockId, blockIndex, type GroupIndex, NULL_BLOCK } from '../core/ids.ts';
import type { GroupProposal } from './group.ts';
import type { KvParts } from './kv-parts.ts';
import type { KvRequest } from './kv-request.ts';
import { releaseBlock } from './release.ts';

/**
 * Several blocks may have the same content: requests that decode the same tokens fill blocks of their own. The request
 * may have to fill a block of a full group while another block with this content is cached. Then it references the
 * cached block instead and computes nothing. Other requests that share its own block keep it and plan again themselves.
 *
 * For a request that plans again. Updates the block table and the `proposal`, which has the same blocks. O(blocks).
 */
export function takeDuplicates(parts: KvParts, proposal: GroupProposal, request: KvRequest, group: GroupIndex): void {
  const { cached, pool, residency } = parts;
  const chain = request.chains[group]!;
  const table = request.tables[group]!;
  chain.extend(request.tokens);
  const count = Math.min(table.length, request.reusableBlocks(chain));
  for (let index = blockIndex(0); index < count; index++) {
    const block = table.at(index);
    if (block !== NULL_BLOCK && !residency.isFilledBy(block, request.slot)) continue;
    const found: BlockId = cached.find(group, chain.words, index);
    if (found === NULL_BLOCK) continue;
    // The reference comes first: the pool could allocate a block without references.
    pool.reference(found);
    if (block !== NULL_BLOCK) releaseBlock(parts, request, { group, index, block });
    table.set(index, found);
    proposal.set(index, found, proposal.blockSize);
  }
}
