import { assert } from '../base/assert.ts';
import type { PlacedBlock } from '../core/block-place.ts';
import { type BlockIndex, blockIndex, blockIndexOf, type GroupIndex, groupIndex, NULL_BLOCK } from '../core/ids.ts';
import type { KvParts } from './kv-parts.ts';
import type { KvRequest } from './kv-request.ts';
import { endOfBlock, releaseKeptFor } from './release.ts';

/**
 * Allocates the blocks that tokens [start, end) need in every group, until the pool has no block. Returns the end of
 * the tokens that have blocks. The tokens belong to the span `request.nextSpan`.
 */
export function allocateForTokens(parts: KvParts, request: KvRequest, start: number, end: number): number {
  const { groups, spec, pool } = parts;
  for (let position = start; position < end; ) {
    let next = end;
    let lacking = 0;
    for (let group = groupIndex(0); group < groups.length; group++) {
      const { blockSize } = spec.groups[group]!;
      const index = blockIndexOf(position, blockSize);
      next = Math.min(next, (index + 1) * blockSize);
      if (lacksBlock(parts, request, group, index)) lacking++;
    }
    if (lacking > pool.available) releaseKeptFor(parts, request, lacking);
    if (lacking > pool.available) return position;
    if (lacking > 0) {
      for (let group = groupIndex(0); group < groups.length; group++) {
        const index = blockIndexOf(position, spec.groups[group]!.blockSize);
        if (lacksBlock(parts, request, group, index)) allocateBlock(parts, request, group, index);
      }
    }
    position = next;
  }
  return end;
}

/** Appends a newly allocated block to the table. If its tokens are known, other requests can find it by its key. */
export function pushNewBlock(parts: KvParts, request: KvRequest, group: GroupIndex): void {
  const table = request.tables[group]!;
  const index = blockIndex(table.length);
  const block = parts.pool.allocate();
  parts.residency.assignOwner(block, request.slot);
  table.push(block);
  announceComputing(parts, request, { group, index, block });
}

function lacksBlock(parts: KvParts, request: KvRequest, group: GroupIndex, index: BlockIndex): boolean {
  const table = request.tables[group]!;
  if (index >= table.length) return true;
  const block = table.at(index);
  if (block === NULL_BLOCK) return true;
  if (!parts.groups[group]!.needsOwnBlock) return false;
  if (!parts.residency.isFilledBy(block, request.slot)) return true;
  return isNeededLater(parts, request, { group, index, block });
}

/** Whether the next span starts from the state in this block, which the tokens of the current span would overwrite. */
function isNeededLater(parts: KvParts, request: KvRequest, place: PlacedBlock): boolean {
  const { spans } = request;
  const later = request.nextSpan + 1;
  return later < spans.count && spans.start(later) === endOfBlock(parts, request, place);
}

function allocateBlock(parts: KvParts, request: KvRequest, group: GroupIndex, index: BlockIndex): void {
  const table = request.tables[group]!;
  if (index >= table.length) {
    if (index !== table.length) assert(false, `block index ${index} leaves a gap in a table of ${table.length} blocks`);
    pushNewBlock(parts, request, group);
    return;
  }
  const old = table.at(index);
  if (old !== NULL_BLOCK) {
    const place = { group, index, block: old };
    assert(isNeededLater(parts, request, place), `block ${old} is in the table, but the plan does not need it`);
    request.reserved.push(place);
  }
  const block = parts.pool.allocate();
  parts.residency.assignOwner(block, request.slot);
  table.set(index, block);
  request.firstAllocated[group] = Math.min(request.firstAllocated[group]!, index);
  const { spans, nextSpan } = request;
  const { blockSize } = parts.spec.groups[group]!;
  const fillsBlock = spans.start(nextSpan) <= index * blockSize && spans.end(nextSpan) >= (index + 1) * blockSize;
  if (fillsBlock) announceComputing(parts, request, { group, index, block });
}

/** From now on, other requests can find the block by its key, reference it, and wait until it is valid. */
function announceComputing(parts: KvParts, request: KvRequest, { group, index, block }: PlacedBlock): void {
  const chain = request.chains[group]!;
  if (parts.enablePrefixCaching && index < chain.count) parts.computing.insert(block, group, chain.words, index);
}
