import { assert } from '../base/assert.ts';
import type { PlacedBlock } from '../core/block-place.ts';
import { NULL_BLOCK } from '../core/ids.ts';
import type { KvParts } from './kv-parts.ts';
import type { KvRequest } from './kv-request.ts';
import { giveUpOwnership } from './ownership.ts';

/**
 * Sees to it that rows [start, end) have pages in every group, as far as the pool lasts; returns where the covered rows
 * end. The rows belong to the span that `request.nextSpan` points at.
 */
export function allocateForTokens(parts: KvParts, request: KvRequest, start: number, end: number): number {
  const { groups, spec, pool } = parts;
  for (let position = start; position < end; ) {
    let next = end;
    let lacking = 0;
    for (let group = 0; group < groups.length; group++) {
      const { blockSize } = spec.groups[group]!;
      const index = Math.floor(position / blockSize);
      next = Math.min(next, (index + 1) * blockSize);
      if (lacksBlock(parts, request, group, index)) lacking++;
    }
    if (lacking > pool.available) return position;
    if (lacking > 0) {
      for (let group = 0; group < groups.length; group++) {
        const index = Math.floor(position / spec.groups[group]!.blockSize);
        if (lacksBlock(parts, request, group, index)) allocateBlock(parts, request, group, index);
      }
    }
    position = next;
  }
  return end;
}

/** Takes a fresh page for a block behind the end of the table; promises its content where it is known. */
export function pushFresh(parts: KvParts, request: KvRequest, group: number): void {
  const table = request.tables[group]!;
  const index = table.length;
  const block = parts.pool.allocate();
  parts.residency.assignOwner(block, request.slot);
  table.push(block);
  announceComputing(parts, request, { group, index, block });
}

/** Lets go of what no token from `position` on can see. */
export function releaseSkipped(parts: KvParts, request: KvRequest, position: number): void {
  for (let group = 0; group < parts.groups.length; group++) {
    const table = request.tables[group]!;
    const kept = Math.min(parts.groups[group]!.firstKept(position), table.length);
    for (let index = request.firstAllocated[group]!; index < kept; index++) {
      const block = table.at(index);
      if (block === NULL_BLOCK) continue;
      releaseBlock(parts, request, { group, index, block });
      table.set(index, NULL_BLOCK);
    }
    if (kept > request.firstAllocated[group]!) request.firstAllocated[group] = kept;
  }
}

/** A run of rows is over: the checkpoints that it had to pass by come back into their places. */
export function restoreReserved(parts: KvParts, request: KvRequest): void {
  for (const { group, index, block } of request.reserved) {
    const table = request.tables[group]!;
    const temporary = table.at(index);
    if (temporary !== NULL_BLOCK) releaseBlock(parts, request, { group, index, block: temporary });
    table.set(index, block);
    request.firstAllocated[group] = Math.min(request.firstAllocated[group]!, index);
  }
  request.reserved.length = 0;
}

/** Gives up what waits aside: the plan that needed it is void. */
export function releaseReserved(parts: KvParts, request: KvRequest): void {
  for (const { group, index, block } of request.reserved) releaseBlock(parts, request, { group, index, block });
  request.reserved.length = 0;
}

/** Gives up one reference; a page that this request was filling goes to others, or loses its content. */
export function releaseBlock(parts: KvParts, request: KvRequest, place: PlacedBlock): void {
  if (parts.residency.isOwnedBy(place.block, request.slot)) giveUpOwnership(parts, request, place);
  parts.pool.release(place.block);
}

function lacksBlock(parts: KvParts, request: KvRequest, group: number, index: number): boolean {
  const table = request.tables[group]!;
  if (index >= table.length) return true;
  const block = table.at(index);
  if (block === NULL_BLOCK) return true;
  if (!parts.groups[group]!.needsOwnBlock) return false;
  if (!parts.residency.isFilledBy(block, request.slot)) return true;
  return isNeededLater(parts, request, group, index) && !isReserved(request, group, index);
}

/** Whether a later span starts from the state that the block's page holds; the rows at hand would run over it. */
function isNeededLater(parts: KvParts, request: KvRequest, group: number, index: number): boolean {
  const { spans } = request;
  const later = request.nextSpan + 1;
  if (later >= spans.count) return false;
  const { blockSize } = parts.spec.groups[group]!;
  return spans.start(later) > index * blockSize && spans.start(later) <= (index + 1) * blockSize;
}

function isReserved(request: KvRequest, group: number, index: number): boolean {
  for (const entry of request.reserved) if (entry.group === group && entry.index === index) return true;
  return false;
}

function allocateBlock(parts: KvParts, request: KvRequest, group: number, index: number): void {
  const table = request.tables[group]!;
  if (index >= table.length) {
    if (index !== table.length) assert(false, `block ${index} would leave a gap in a table of ${table.length}`);
    pushFresh(parts, request, group);
    return;
  }
  const old = table.at(index);
  if (old !== NULL_BLOCK) {
    assert(isNeededLater(parts, request, group, index), `page ${old} is kept, but the plan does not rely on it`);
    request.reserved.push({ group, index, block: old });
  }
  const block = parts.pool.allocate();
  parts.residency.assignOwner(block, request.slot);
  table.set(index, block);
  request.firstAllocated[group] = Math.min(request.firstAllocated[group]!, index);
  const { spans, nextSpan } = request;
  const { blockSize } = parts.spec.groups[group]!;
  const isWhole = spans.start(nextSpan) <= index * blockSize && spans.end(nextSpan) >= (index + 1) * blockSize;
  if (isWhole) announceComputing(parts, request, { group, index, block });
}

/** From now on others may refer to the page and wait for it. */
function announceComputing(parts: KvParts, request: KvRequest, { group, index, block }: PlacedBlock): void {
  const chain = request.chains[group]!;
  if (parts.enablePrefixCaching && index < chain.count) parts.computing.insert(block, group, chain.words, index);
}
