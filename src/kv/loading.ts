import { assert, assertDefined } from '../base/assert.ts';
import type { BlockPlace, PlacedBlock } from '../core/block-place.ts';
import { type BlockId, NULL_BLOCK } from '../core/ids.ts';
import type { KvParts } from './kv-parts.ts';
import type { KvRequest } from './kv-request.ts';

/**
 * What becomes of a page that a transfer fills. A loading page has an owner like a page that is computed: others refer to
 * it and wait for it in the same way, it passes on when its owner leaves, and when the load fails its owner computes it.
 *
 *   admit --> loading --arrived--> valid, published
 *                |-----failed----> the owner computes it; in another page when I/O may still write this one (I5)
 *                |-----late------> rows of this step do not count on it any more; it may still arrive
 *
 *   lost --> loading, in the page that has lost its content; then as above
 */
/** The bytes are there and were verified. False if no request waits for them any more. */
export function loadArrived(parts: KvParts, { group, index, block }: PlacedBlock): boolean {
  const { residency, computing, cached, requests } = parts;
  if (!residency.isLoading(block)) return false;
  const owner = assertDefined(
    requests[assertDefined(residency.ownerOf(block), 'a load for nobody')],
    'its owner is gone',
  );
  assert(owner.chains[group]!.count > index, `block ${index} was loaded, but has no digest`);
  residency.loadArrived(block, parts.spec.groups[group]!.blockSize);
  residency.clearOwner(block, owner.slot);
  if (computing.has(block)) computing.remove(block);
  if (parts.enablePrefixCaching) cached.insert(block, group, owner.chains[group]!.words, index);
  return true;
}

/** Loads that were expected within the step are late: requests that need them wait. */
export function loadLate(parts: KvParts, blocks: readonly BlockId[]): void {
  for (const block of blocks) {
    if (!parts.residency.isLoading(block)) continue;
    parts.residency.scheduledTokens[block] = 0;
    for (const { request } of usersOf(parts, block)) request.needsPlan = true;
  }
}

/** The load has failed: its users plan again. Returns them; none if no request waits for the load any more. */
export function loadFailed(parts: KvParts, block: BlockId, isBusy: boolean): KvRequest[] {
  if (!parts.residency.isLoading(block)) return [];
  parts.residency.stopLoading(block);
  const users = usersOf(parts, block);
  for (const { request } of users) request.needsPlan = true;
  if (isBusy) replaceBusyBlock(parts, block, users);
  return users.map(({ request }) => request);
}

/**
 * The full blocks of an admitted request that it is to compute whole: what a transfer could bring instead. None where a group lets go of pages: there the plan decides which pages are needed. O(blocks).
 */
export function uncomputedBlocks({ groups, residency }: KvParts, request: KvRequest): BlockPlace[] {
  const places: BlockPlace[] = [];
  if (!groups.every(({ allocatesAll }) => allocatesAll)) return places;
  for (let group = 0; group < groups.length; group++) {
    const table = request.tables[group]!;
    const count = Math.min(table.length, request.chains[group]!.count);
    for (let index = 0; index < count; index++) {
      const block = table.at(index);
      // Without a page is what lost its page to a transfer when the pool had no other.
      if (block !== NULL_BLOCK && !(residency.isFilledBy(block, request.slot) && residency.validTokens[block] === 0))
        continue;
      places.push({ group, index });
    }
  }
  return places;
}

/**
 * Transfers are to fill these blocks, which `missingBlocks` has just named, in the pages that the request has for them.
 * A page that an earlier transfer still holds is replaced; without a page for that, the block is computed.
 */
export function startLoads(parts: KvParts, request: KvRequest, places: readonly BlockPlace[]): PlacedBlock[] {
  const { residency, computing, pool } = parts;
  const placed: PlacedBlock[] = [];
  for (const { group, index } of places) {
    const table = request.tables[group]!;
    const hasNoBlock = table.at(index) === NULL_BLOCK;
    if ((hasNoBlock || pool.isPinned(table.at(index))) && pool.available === 0) continue;
    if (hasNoBlock) {
      table.set(index, pool.allocate());
      residency.assignOwner(table.at(index), request.slot);
    } else if (pool.isPinned(table.at(index))) {
      const users = usersOf(parts, table.at(index));
      replaceBusyBlock(parts, table.at(index), users);
      for (const user of users) user.request.needsPlan = true;
    }
    const block = table.at(index);
    // Requests that come from now on share the page, and wait for the load.
    if (!computing.has(block)) computing.insert(block, group, request.chains[group]!.words, index);
    residency.startLoading(block, 0);
    placed.push({ group, index, block });
  }
  if (placed.length > 0) request.needsPlan = true;
  return placed;
}

export function isAwaitingLoad({ residency }: KvParts, { awaited }: KvRequest): boolean {
  for (let i = 0; i < awaited.length; i++) {
    const { block, blockSize } = awaited[i]!;
    if (residency.isLoading(block) && residency.scheduledTokens[block] !== blockSize) return true;
  }
  return false;
}

/**
 * Something may still be written to the page, so nobody keeps it: in a full group all its users get another one, which
 * its owner computes; elsewhere pages are taken when their rows are planned. O(pages of all tables).
 */
function replaceBusyBlock(parts: KvParts, block: BlockId, users: readonly BlockUser[]): void {
  const { pool, residency, computing } = parts;
  const slot = assertDefined(residency.ownerOf(block), `page ${block} has no owner`);
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

interface BlockUser extends BlockPlace {
  readonly request: KvRequest;
  readonly isReserved: boolean;
}

function usersOf({ requests, pool }: KvParts, block: BlockId): BlockUser[] {
  const users: BlockUser[] = [];
  for (const request of requests) {
    if (request === undefined || users.length === pool.references(block)) continue;
    for (const { group, index, block: reserved } of request.reserved)
      if (reserved === block) users.push({ request, group, index, isReserved: true });
    for (let group = 0; group < request.tables.length; group++) {
      const index = request.tables[group]!.indexOf(block, request.firstAllocated[group]!);
      if (index !== undefined) users.push({ request, group, index, isReserved: false });
    }
  }
  return users;
}
