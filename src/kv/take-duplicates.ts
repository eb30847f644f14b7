import { type BlockId, NULL_BLOCK } from '../core/ids.ts';
import { releasePage } from './coverage.ts';
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
export function takeDuplicates(parts: KvParts, proposal: GroupProposal, request: KvRequest, g: number): void {
  const { published, pool, residency } = parts;
  const chain = request.chains[g]!;
  const table = request.tables[g]!;
  chain.extend(request.tokens);
  for (let block = 0; block < Math.min(table.length, chain.count); block++) {
    const page = table.at(block);
    if (page !== NULL_BLOCK && !residency.isFilledBy(page, request.slot)) continue;
    const found: BlockId = published.find(g, chain.words, block);
    if (found === NULL_BLOCK) continue;
    // First the one, then the other: a page that nobody refers to could be handed out.
    pool.reference(found);
    if (page !== NULL_BLOCK) releasePage(parts, request, { group: g, index: block, page });
    table.set(block, found);
    proposal.set(block, found, proposal.blockSize);
  }
}
