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
export function loadArrived(parts: KvParts, { group, index: block, page }: PlacedBlock): boolean {
  const { residency, computing, published, requests } = parts;
  if (!residency.isLoading(page)) return false;
  const owner = assertDefined(
    requests[assertDefined(residency.ownerOf(page), 'a load for nobody')],
    'its owner is gone',
  );
  assert(owner.chains[group]!.count > block, `block ${block} was loaded, but has no digest`);
  residency.loadArrived(page, parts.spec.groups[group]!.blockSize);
  residency.disown(page, owner.slot);
  if (computing.has(page)) computing.remove(page);
  if (parts.enablePrefixCaching) published.insert(page, group, owner.chains[group]!.words, block);
  return true;
}

/** Loads that were expected within the step are late: requests that need them wait. */
export function loadLate(parts: KvParts, pages: readonly BlockId[]): void {
  for (const page of pages) {
    if (!parts.residency.isLoading(page)) continue;
    parts.residency.plannedTo[page] = 0;
    for (const { request } of holdersOf(parts, page)) request.needsPlan = true;
  }
}

/** The load has failed: its users plan again. Returns them; none if no request waits for the load any more. */
export function loadFailed(parts: KvParts, page: BlockId, isBusy: boolean): KvRequest[] {
  if (!parts.residency.isLoading(page)) return [];
  parts.residency.stopLoading(page);
  const holders = holdersOf(parts, page);
  for (const { request } of holders) request.needsPlan = true;
  if (isBusy) leaveToIo(parts, page, holders);
  return holders.map(({ request }) => request);
}

/**
 * The full blocks of an admitted request that it is to compute whole: what a transfer could bring instead. None where a group lets go of pages: there the plan decides which pages are needed. O(blocks).
 */
export function missingBlocks({ groups, residency }: KvParts, request: KvRequest): BlockPlace[] {
  const places: BlockPlace[] = [];
  if (!groups.every(({ takesAllAtOnce }) => takesAllAtOnce)) return places;
  for (let group = 0; group < groups.length; group++) {
    const table = request.tables[group]!;
    const count = Math.min(table.length, request.chains[group]!.count);
    for (let block = 0; block < count; block++) {
      const page = table.at(block);
      // Without a page is what lost its page to a transfer when the pool had no other.
      if (page !== NULL_BLOCK && !(residency.isFilledBy(page, request.slot) && residency.validTo[page] === 0)) continue;
      places.push({ group, index: block });
    }
  }
  return places;
}

/**
 * Transfers are to fill these blocks, which `missingBlocks` has just named, in the pages that the request has for them.
 * A page that an earlier transfer still holds is replaced; without a page for that, the block is computed.
 */
export function loadMissing(parts: KvParts, request: KvRequest, places: readonly BlockPlace[]): PlacedBlock[] {
  const { residency, computing, pool } = parts;
  const placed: PlacedBlock[] = [];
  for (const { group, index: block } of places) {
    const table = request.tables[group]!;
    const isWithoutPage = table.at(block) === NULL_BLOCK;
    if ((isWithoutPage || pool.isHeld(table.at(block))) && pool.available === 0) continue;
    if (isWithoutPage) {
      table.set(block, pool.allocate());
      residency.begin(table.at(block), request.slot);
    } else if (pool.isHeld(table.at(block))) {
      const holders = holdersOf(parts, table.at(block));
      leaveToIo(parts, table.at(block), holders);
      for (const holder of holders) holder.request.needsPlan = true;
    }
    const page = table.at(block);
    // Requests that come from now on share the page, and wait for the load.
    if (!computing.has(page)) computing.insert(page, group, request.chains[group]!.words, block);
    residency.startLoading(page, 0);
    placed.push({ group, index: block, page });
  }
  if (placed.length > 0) request.needsPlan = true;
  return placed;
}

export function isAwaitingLoad({ residency }: KvParts, { awaited }: KvRequest): boolean {
  for (let i = 0; i < awaited.length; i++) {
    const { page, blockSize } = awaited[i]!;
    if (residency.isLoading(page) && residency.plannedTo[page] !== blockSize) return true;
  }
  return false;
}

/**
 * Something may still be written to the page, so nobody keeps it: in a full group all its users get another one, which
 * its owner computes; elsewhere pages are taken when their rows are planned. O(pages of all tables).
 */
function leaveToIo(parts: KvParts, page: BlockId, holders: readonly Holder[]): void {
  const { pool, residency, computing } = parts;
  const slot = assertDefined(residency.ownerOf(page), `page ${page} has no owner`);
  const { group, index: block } = holders[0]!;
  const canReplace = parts.groups[group]!.takesAllAtOnce && pool.available > 0;
  const fresh = canReplace ? pool.allocate() : NULL_BLOCK;
  residency.disown(page, slot);
  const wasPromised = computing.has(page);
  if (wasPromised) computing.remove(page);
  if (canReplace) {
    residency.begin(fresh, slot);
    const { chains } = parts.requests[slot]!;
    if (wasPromised) computing.insert(fresh, group, chains[group]!.words, block);
  }
  for (let i = 0; i < holders.length; i++) {
    const { request, isParked } = holders[i]!;
    if (isParked) {
      request.parked.splice(
        request.parked.findIndex((entry) => entry.page === page),
        1,
      );
    } else {
      request.tables[group]!.set(block, fresh);
      if (canReplace && i > 0) pool.reference(fresh);
    }
    pool.release(page);
  }
}

interface Holder extends BlockPlace {
  readonly request: KvRequest;
  readonly isParked: boolean;
}

function holdersOf({ requests, pool }: KvParts, page: BlockId): Holder[] {
  const holders: Holder[] = [];
  for (const request of requests) {
    if (request === undefined || holders.length === pool.references(page)) continue;
    for (const { group, index: block, page: parked } of request.parked)
      if (parked === page) holders.push({ request, group, index: block, isParked: true });
    for (let group = 0; group < request.tables.length; group++) {
      const block = request.tables[group]!.indexOf(page, request.firstHeld[group]!);
      if (block !== undefined) holders.push({ request, group, index: block, isParked: false });
    }
  }
  return holders;
}
