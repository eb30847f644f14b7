import type { PlacedBlock } from '../core/block-place.ts';
import { blockIndex, blockIndexOf, groupIndex, NULL_BLOCK } from '../core/ids.ts';
import type { KvParts } from './kv-parts.ts';
import type { KvRequest } from './kv-request.ts';
import { giveUpOwnership, withdrawComputing } from './ownership.ts';

/**
 * Releases the blocks that no token from `position` on reads. The tokens up to `computedEnd` have just been computed: a
 * block with the last of them is kept.
 */
export function releaseSkipped(parts: KvParts, request: KvRequest, position: number, computedEnd: number): void {
  for (let group = groupIndex(0); group < parts.groups.length; group++) {
    const table = request.tables[group]!;
    const kept = Math.min(parts.groups[group]!.firstKept(position), table.length);
    const last = blockIndexOf(computedEnd - 1, parts.spec.groups[group]!.blockSize);
    for (let index = blockIndex(request.firstAllocated[group]!); index < kept; index++) {
      const block = table.at(index);
      if (block === NULL_BLOCK) continue;
      if (index === last) setAside(parts, request, { group, index, block });
      else releaseBlock(parts, request, { group, index, block });
      table.set(index, NULL_BLOCK);
    }
    if (kept > request.firstAllocated[group]!) request.firstAllocated[group] = kept;
  }
}

/**
 * The plan does not need a block of the request. Keeps the block if it has valid tokens and the prefix cache will not find
 * it, else releases it. If KV that the plan counts on turns out to be invalid, the request may continue from these tokens.
 *
 *   state    ......|~~~~......|......######      ~ = computed for another group; the running state is kept
 *   plan     ......^^^^............^^^^^^^^      # = starts from a loaded checkpoint
 */
export function setAside(parts: KvParts, request: KvRequest, place: PlacedBlock): void {
  const { residency, computing, cached } = parts;
  const { block } = place;
  const isOwn = residency.isFilledBy(block, request.slot);
  if (cached.has(block) || residency.validTokens[block] === 0 || (residency.isOwned(block) && !isOwn)) {
    releaseBlock(parts, request, place);
    return;
  }
  if (computing.has(block)) withdrawComputing(parts, request, place);
  request.kept.push(place);
}

/** Releases the kept blocks: more tokens are computed. */
export function releaseKept(parts: KvParts, request: KvRequest): void {
  for (const place of request.kept) releaseBlock(parts, request, place);
  request.kept.length = 0;
}

/** The pool has too few blocks for the request: releases as many of its kept blocks as are enough, if they are. */
export function releaseKeptFor(parts: KvParts, request: KvRequest, blocks: number): void {
  const { pool } = parts;
  if (blocks > pool.available + request.kept.length) return;
  while (blocks > pool.available && request.kept.length > 0) releaseBlock(parts, request, request.kept.shift()!);
}

/** A span is computed: puts the states from which the next span starts back into the block tables. */
export function restoreReserved(parts: KvParts, request: KvRequest): void {
  const next = request.nextPosition();
  let left = 0;
  for (const place of request.reserved) {
    if (endOfBlock(parts, request, place) !== next) {
      request.reserved[left++] = place;
      continue;
    }
    const { group, index, block } = place;
    const table = request.tables[group]!;
    const temporary = table.at(index);
    if (temporary !== NULL_BLOCK) setAside(parts, request, { group, index, block: temporary });
    table.set(index, block);
    request.firstAllocated[group] = Math.min(request.firstAllocated[group]!, index);
  }
  request.reserved.length = left;
}

/** Releases all blocks of the request, which is then as before its admission. */
export function releaseAll(parts: KvParts, request: KvRequest): void {
  for (const place of request.reserved) releaseBlock(parts, request, place);
  request.reserved.length = 0;
  releaseKept(parts, request);
  releaseTables(parts, request);
  request.reset();
}

/**
 * Releases the blocks in all tables, from the last tokens to the first. The pool evicts in this order. So the beginning
 * of the request stays cached longest, in all groups: a window or a state is used only with the blocks before it.
 */
function releaseTables(parts: KvParts, request: KvRequest): void {
  const { tables, firstAllocated } = request;
  const lefts = tables.map(({ length }) => length);
  for (;;) {
    let last = groupIndex(0);
    let lastEnd = 0;
    for (let group = groupIndex(0); group < tables.length; group++) {
      const end = lefts[group]! > firstAllocated[group]! ? lefts[group]! * parts.spec.groups[group]!.blockSize : 0;
      if (end > lastEnd) [last, lastEnd] = [group, end];
    }
    if (lastEnd === 0) break;
    const index = blockIndex(--lefts[last]!);
    const block = tables[last]!.at(index);
    if (block !== NULL_BLOCK) releaseBlock(parts, request, { group: last, index, block });
  }
  for (const table of tables) table.clear();
}

/** Releases one block of the request. If the request is its owner, the ownership is transferred or ends. */
export function releaseBlock(parts: KvParts, request: KvRequest, place: PlacedBlock): void {
  if (parts.residency.isOwnedBy(place.block, request.slot)) giveUpOwnership(parts, request, place);
  parts.pool.release(place.block);
}

/**
 * The position after the block's tokens that are valid after this step, for this request. A block that another request or
 * a transfer fills counts as full.
 */
export function endOfBlock(
  { residency, spec }: KvParts,
  request: KvRequest,
  { group, index, block }: PlacedBlock,
): number {
  const { blockSize } = spec.groups[group]!;
  const isOwn = residency.isFilledBy(block, request.slot);
  return index * blockSize + (isOwn ? residency.scheduledTokens[block]! : blockSize);
}
