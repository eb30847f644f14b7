import { type BlockId, NULL_BLOCK } from '../core/ids.ts';
import { releaseBlock } from './coverage.ts';
import type { GroupProposal } from './group.ts';
import type { KvParts } from './kv-parts.ts';
import type { KvRequest } from './kv-request.ts';

/**
 * Several pages may hold one block: whoever decodes the same tokens fills pages of its own. Where the request is to fill a
 * page in a full group, and another one with this very content is published by now, it takes that one instead: what
 * was lost, or is not computed yet, need not be. Its page goes to those who share it; they look for themselves.
 *
 * For a request that plans again; `proposal` is what its table holds and is kept in step. O(blocks).
 */
export function takeDuplicates(parts: KvParts, proposal: GroupProposal, request: KvRequest, group: number): void {
  const { cached, pool, residency } = parts;
  const chain = request.chains[group]!;
  const table = request.tables[group]!;
  chain.extend(request.tokens);
  for (let index = 0; index < Math.min(table.length, chain.count); index++) {
    const block = table.at(index);
    if (block !== NULL_BLOCK && !residency.isFilledBy(block, request.slot)) continue;
    const found: BlockId = cached.find(group, chain.words, index);
    if (found === NULL_BLOCK) continue;
    // First the one, then the other: a page that nobody refers to could be handed out.
    pool.reference(found);
    if (block !== NULL_BLOCK) releaseBlock(parts, request, { group, index, block });
    table.set(index, found);
    proposal.set(index, found, proposal.blockSize);
  }
}
