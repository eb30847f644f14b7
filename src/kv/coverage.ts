import { assert } from '../base/assert.ts';
import type { PlacedBlock } from '../core/block-place.ts';
import { NULL_BLOCK } from '../core/ids.ts';
import type { KvParts } from './kv-parts.ts';
import type { KvRequest } from './kv-request.ts';
import { leavePage } from './ownership.ts';

/**
 * Sees to it that rows [start, end) have pages in every group, as far as the pool lasts; returns where the covered rows
 * end. The rows belong to the span that `request.nextSpan` points at.
 */
export function coverRows(parts: KvParts, request: KvRequest, start: number, end: number): number {
  const { groups, spec, pool } = parts;
  for (let position = start; position < end; ) {
    let next = end;
    let lacking = 0;
    for (let g = 0; g < groups.length; g++) {
      const { blockSize } = spec.groups[g]!;
      const block = Math.floor(position / blockSize);
      next = Math.min(next, (block + 1) * blockSize);
      if (lacksPage(parts, request, g, block)) lacking++;
    }
    if (lacking > pool.available) return position;
    if (lacking > 0) {
      for (let g = 0; g < groups.length; g++) {
        const block = Math.floor(position / spec.groups[g]!.blockSize);
        if (lacksPage(parts, request, g, block)) providePage(parts, request, g, block);
      }
    }
    position = next;
  }
  return end;
}

/** Takes a fresh page for a block behind the end of the table; promises its content where it is known. */
export function pushFresh(parts: KvParts, request: KvRequest, g: number): void {
  const table = request.tables[g]!;
  const block = table.length;
  const page = parts.pool.allocate();
  parts.residency.begin(page, request.slot);
  table.push(page);
  promise(parts, request, { group: g, index: block, page });
}

/** Lets go of what no token from `position` on can see. */
export function releaseBehind(parts: KvParts, request: KvRequest, position: number): void {
  for (let g = 0; g < parts.groups.length; g++) {
    const table = request.tables[g]!;
    const kept = Math.min(parts.groups[g]!.firstKept(position), table.length);
    for (let block = request.firstHeld[g]!; block < kept; block++) {
      const page = table.at(block);
      if (page === NULL_BLOCK) continue;
      releasePage(parts, request, { group: g, index: block, page });
      table.set(block, NULL_BLOCK);
    }
    if (kept > request.firstHeld[g]!) request.firstHeld[g] = kept;
  }
}

/** A run of rows is over: the checkpoints that it had to pass by come back into their places. */
export function unpark(parts: KvParts, request: KvRequest): void {
  for (const { group, index: block, page } of request.parked) {
    const table = request.tables[group]!;
    const stopgap = table.at(block);
    if (stopgap !== NULL_BLOCK) releasePage(parts, request, { group, index: block, page: stopgap });
    table.set(block, page);
    request.firstHeld[group] = Math.min(request.firstHeld[group]!, block);
  }
  request.parked.length = 0;
}

/** Gives up what waits aside: the plan that needed it is void. */
export function dropParked(parts: KvParts, request: KvRequest): void {
  for (const { group, index: block, page } of request.parked)
    releasePage(parts, request, { group, index: block, page });
  request.parked.length = 0;
}

/** Gives up one reference; a page that this request was filling goes to others, or loses its content. */
export function releasePage(parts: KvParts, request: KvRequest, place: PlacedBlock): void {
  if (parts.residency.isOwnedBy(place.page, request.slot)) leavePage(parts, request, place);
  parts.pool.release(place.page);
}

function lacksPage(parts: KvParts, request: KvRequest, g: number, block: number): boolean {
  const table = request.tables[g]!;
  if (block >= table.length) return true;
  const page = table.at(block);
  if (page === NULL_BLOCK) return true;
  if (!parts.groups[g]!.rowsNeedOwnPage) return false;
  if (!parts.residency.isFilledBy(page, request.slot)) return true;
  return isNeededLater(parts, request, g, block) && !isParked(request, g, block);
}

/** Whether a later span starts from the state that the block's page holds; the rows at hand would run over it. */
function isNeededLater(parts: KvParts, request: KvRequest, g: number, block: number): boolean {
  const { spans } = request;
  const later = request.nextSpan + 1;
  if (later >= spans.count) return false;
  const { blockSize } = parts.spec.groups[g]!;
  return spans.start(later) > block * blockSize && spans.start(later) <= (block + 1) * blockSize;
}

function isParked(request: KvRequest, g: number, block: number): boolean {
  for (const entry of request.parked) if (entry.group === g && entry.index === block) return true;
  return false;
}

function providePage(parts: KvParts, request: KvRequest, g: number, block: number): void {
  const table = request.tables[g]!;
  if (block >= table.length) {
    if (block !== table.length) assert(false, `block ${block} would leave a gap in a table of ${table.length}`);
    pushFresh(parts, request, g);
    return;
  }
  const old = table.at(block);
  if (old !== NULL_BLOCK) {
    assert(isNeededLater(parts, request, g, block), `page ${old} is kept, but the plan does not rely on it`);
    request.parked.push({ group: g, index: block, page: old });
  }
  const page = parts.pool.allocate();
  parts.residency.begin(page, request.slot);
  table.set(block, page);
  request.firstHeld[g] = Math.min(request.firstHeld[g]!, block);
  const { spans, nextSpan } = request;
  const { blockSize } = parts.spec.groups[g]!;
  const isWhole = spans.start(nextSpan) <= block * blockSize && spans.end(nextSpan) >= (block + 1) * blockSize;
  if (isWhole) promise(parts, request, { group: g, index: block, page });
}

/** From now on others may refer to the page and wait for it. */
function promise(parts: KvParts, request: KvRequest, { group, index: block, page }: PlacedBlock): void {
  const chain = request.chains[group]!;
  if (parts.enablePrefixCaching && block < chain.count) parts.computing.insert(page, group, chain.words, block);
}
