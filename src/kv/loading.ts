import { assert, assertDefined } from '../base/assert.ts';
import type { BlockPlace, PlacedBlock } from '../core/block-place.ts';
import { type BlockId, blockIndex, groupIndex, NULL_BLOCK } from '../core/ids.ts';
import type { KvParts } from './kv-parts.ts';
import type { KvRequest } from './kv-request.ts';

/**
 * Blocks that a transfer fills. A loading block has an owner like a block that is computed. Other requests reference it
 * and wait for it in the same way. If the owner ends, another request becomes the owner. If the load fails, the owner
 * computes the block.
 *
 *   admit --> loading --arrived--> valid, cached
 *                |-----failed----> the owner computes it; in another block if I/O may still write this one (I5)
 *                |-----late------> tokens of this step do not count on it; it may still arrive
 *
 *   invalid --> loading, in the same block; then as above
 */

/** The block was loaded and verified. Returns false if no request waits for it. */
export function loadArrived(parts: KvParts, { group, index, block }: PlacedBlock): boolean {
  const { residency, computing, cached, requests } = parts;
  if (!residency.isLoading(block)) return false;
  const owner = assertDefined(
    requests[assertDefined(residency.ownerOf(block), 'a loading block has no owner')],
    'the owner of a loading block is closed',
  );
  assert(owner.chains[group]!.count > index, `block index ${index} was loaded, but has no digest`);
  residency.loadArrived(block, parts.spec.groups[group]!.blockSize);
  residency.clearOwner(block, owner.slot);
  if (computing.has(block)) computing.remove(block);
  if (!parts.enablePrefixCaching) return true;
  cached.insert(block, group, owner.chains[group]!.words, index);
  parts.events?.stored(block, owner, group, index);
  return true;
}

/** Sync loads did not end within their step: the requests that need the blocks wait. */
export function loadLate(parts: KvParts, blocks: readonly BlockId[]): void {
  for (const block of blocks) {
    if (!parts.residency.isLoading(block)) continue;
    parts.residency.scheduledTokens[block] = 0;
    for (const { request } of usersOf(parts, block)) request.needsPlan = true;
  }
}

/**
 * The load failed: the requests that have the block plan again. Returns them; none if no request waits for the load.
 */
export function loadFailed(parts: KvParts, block: BlockId, isBusy: boolean): KvRequest[] {
  if (!parts.residency.isLoading(block)) return [];
  parts.residency.stopLoading(block);
  const users = usersOf(parts, block);
  for (const { request } of users) request.needsPlan = true;
  if (isBusy) replaceBusyBlock(parts, block, users);
  return users.map(({ request }) => request);
}

export function isAwaitingLoad({ residency }: KvParts, { awaited }: KvRequest): boolean {
  for (let i = 0; i < awaited.length; i++) {
    const { block, blockSize } = awaited[i]!;
    if (residency.isLoading(block) && residency.scheduledTokens[block] !== blockSize) return true;
  }
  return false;
}

/**
 * I/O may still write the block, so all requests release it. In a full group they get another block, which the owner
 * computes. In other groups, blocks are allocated when their tokens are scheduled. O(blocks of all tables).
 */
export function replaceBusyBlock(parts: KvParts, block: BlockId, users: readonly BlockUser[]): void {
  const { pool, residency, computing } = parts;
  const slot = assertDefined(residency.ownerOf(block), `block ${block} has no owner`);
  const { group, index } = users[0]!;
  const canReplace = parts.groups[group]!.allocatesAll && pool.available > 0;
  const fresh = canReplace ? pool.allocate() : NULL_BLOCK;
  residency.clearOwner(block, slot);
  const wasAnnounced = computing.has(block);
  if (wasAnnounced) computing.remove(block);
  if (canReplace) {
    residency.assignOwner(fresh, slot);
    const { chains } = parts.requests[slot]!;
    if (wasAnnounced) computing.insert(fresh, group, chains[group]!.words, index);
  }
  for (let i = 0; i < users.length; i++) {
    const { request, isReserved } = users[i]!;
    if (isReserved) {
      request.reserved.splice(
        request.reserved.findIndex((entry) => entry.block === block),
        1,
      );
    } else {
      request.tables[group]!.set(index, fresh);
      if (canReplace && i > 0) pool.reference(fresh);
    }
    pool.release(block);
  }
}

export interface BlockUser extends BlockPlace {
  readonly request: KvRequest;
  readonly isReserved: boolean;
}

export function usersOf({ requests, pool }: KvParts, block: BlockId): BlockUser[] {
  const users: BlockUser[] = [];
  for (const request of requests) {
    if (request === undefined || users.length === pool.references(block)) continue;
    for (const { group, index, block: reserved } of request.reserved)
      if (reserved === block) users.push({ request, group, index, isReserved: true });
    for (let group = groupIndex(0); group < request.tables.length; group++) {
      const index = request.tables[group]!.indexOf(block, blockIndex(request.firstAllocated[group]!));
      if (index !== undefined) users.push({ request, group, index, isReserved: false });
    }
  }
  return users;
}
