import type { BlockPlace, PlacedBlock } from '../core/block-place.ts';
import { type BlockId, blockIndex, type GroupIndex, groupIndex, NULL_BLOCK } from '../core/ids.ts';
import { InvalidBlocks } from '../core/invalid-blocks.ts';
import type { KvParts } from './kv-parts.ts';
import type { KvRequest } from './kv-request.ts';
import { releaseBlock } from './release.ts';

/** Tokens of a step do not count, so these blocks are not filled. The requests that wait for them plan again. */
export function replanRequestsAwaiting({ requests }: KvParts, invalid: InvalidBlocks): void {
  for (const other of requests) if (other !== undefined && awaitsInvalid(other, invalid)) other.needsPlan = true;
}

function awaitsInvalid({ awaited, nextAwaited }: KvRequest, invalid: InvalidBlocks): boolean {
  for (let i = 0; i < nextAwaited; i++) if (invalid.has(awaited[i]!.block)) return true;
  return false;
}

/**
 * The KV of these blocks is invalid: a block is corrupt, a worker restarted with empty memory, or a report says so.
 * Each request that has one of the blocks plans again.
 *
 * Evicts the blocks and marks them invalid. In a full group, the request that was admitted first fills the block again,
 * and the others wait for it (I1). In other groups, the requests release the block. Returns all requests that have one
 * of the blocks: they must plan again. No step is in flight. O(blocks of all tables).
 */
export function invalidateBlocks(parts: KvParts, blocks: readonly BlockId[]): KvRequest[] {
  const { cached, pool, requests, residency } = parts;
  const invalid = new InvalidBlocks(parts.spec, blocks);
  for (const block of invalid.blocks) {
    if (cached.has(block)) pool.evict(block);
    residency.empty(block);
  }
  const users = new Set<KvRequest>();
  for (const request of requests) {
    if (request === undefined) continue;
    for (let group = groupIndex(0); group < request.tables.length; group++)
      if (invalidateIn(parts, request, group, invalid)) users.add(request);
    if (releaseInvalid(parts, request, request.reserved, invalid)) users.add(request);
    releaseInvalid(parts, request, request.kept, invalid);
  }
  for (const user of users) user.needsPlan = true;
  return [...users];
}

/** The places where the request has an invalid block. O(blocks of the request). */
export function invalidPlaces({ groups }: KvParts, request: KvRequest, invalid: InvalidBlocks): BlockPlace[] {
  const found: BlockPlace[] = [];
  for (let group = groupIndex(0); group < groups.length; group++) {
    const table = request.tables[group]!;
    for (let index = blockIndex(request.firstAllocated[group]!); index < table.length; index++)
      if (invalid.has(table.at(index))) found.push({ group, index });
  }
  for (const { group, index, block } of request.reserved) if (invalid.has(block)) found.push({ group, index });
  return found;
}

function invalidateIn(parts: KvParts, request: KvRequest, group: GroupIndex, invalid: InvalidBlocks): boolean {
  const table = request.tables[group]!;
  let isUser = false;
  for (let index = blockIndex(request.firstAllocated[group]!); index < table.length; index++) {
    const block = table.at(index);
    if (!invalid.has(block)) continue;
    isUser = true;
    if (!parts.groups[group]!.allocatesAll) {
      if (parts.residency.isOwnedBy(block, request.slot)) continue;
      releaseBlock(parts, request, { group, index, block });
      table.set(index, NULL_BLOCK);
    } else takeOwnership(parts, request, { group, index, block });
  }
  return isUser;
}

/** Releases the invalid blocks among reserved or kept blocks. Returns whether there were any. */
function releaseInvalid(parts: KvParts, request: KvRequest, places: PlacedBlock[], invalid: InvalidBlocks): boolean {
  const before = places.length;
  for (let i = places.length - 1; i >= 0; i--)
    if (invalid.has(places[i]!.block)) releaseBlock(parts, request, places.splice(i, 1)[0]!);
  return places.length < before;
}

/** Makes the request the block's owner if the block has none, or if the present owner was admitted later. */
function takeOwnership(parts: KvParts, request: KvRequest, { group, index, block }: PlacedBlock): void {
  const { residency, computing } = parts;
  if (residency.isOwned(block)) {
    const owner = parts.requests.find((other) => other !== undefined && residency.isOwnedBy(block, other.slot));
    if (owner === undefined || owner.admission <= request.admission) return;
    residency.transferOwnership(block, owner.slot, request.slot);
    return;
  }
  residency.assignOwner(block, request.slot);
  const chain = request.chains[group]!;
  if (parts.enablePrefixCaching && index < chain.count) computing.insert(block, group, chain.words, index);
}
