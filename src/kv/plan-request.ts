import type { BlockPlace, PlacedBlock } from '../core/block-place.ts';
import { type BlockId, blockIndex, type GroupIndex, groupIndex, NULL_BLOCK } from '../core/ids.ts';
import { chooseLoads } from './choose-loads.ts';
import type { GroupProposal } from './group.ts';
import type { KvParts } from './kv-parts.ts';
import type { KvRequest } from './kv-request.ts';
import { withdrawComputing } from './ownership.ts';
import { planSpans } from './planner.ts';
import { setAside } from './release.ts';
import { takeDuplicates } from './take-duplicates.ts';

/** Plans the tokens that the request must compute. Blocks that other requests or transfers fill count as valid. */
export function planRequest(parts: KvParts, groups: readonly GroupProposal[], request: KvRequest): void {
  readTables(parts, groups, request);
  setSpans(groups, request);
  collectAwaited(parts, request);
}

/**
 * Plans again from the valid KV: releases blocks that the new plan does not need, and references cached blocks again.
 * Blocks that a connector `found` count as valid; the proposals say which of them the plan needs.
 */
export function replanRequest(
  parts: KvParts,
  proposals: readonly GroupProposal[],
  request: KvRequest,
  found: readonly BlockPlace[] = nothingFound,
): void {
  readTables(parts, proposals, request);
  if (parts.enablePrefixCaching) findAgain(parts, proposals, request);
  for (const { group, index } of found) proposals[group]!.setExternal(index);
  setSpans(proposals, request);
  if (found.length > 0) for (const proposal of proposals) chooseLoads(proposal, request.spans);
  for (let group = groupIndex(0); group < parts.groups.length; group++) {
    if (parts.groups[group]!.allocatesAll) continue;
    parts.groups[group]!.dropUnneeded(proposals[group]!, request.spans);
    applyPlan(parts, proposals[group]!, request, group);
  }
  collectAwaited(parts, request);
}

function setSpans(groups: readonly GroupProposal[], request: KvRequest): void {
  planSpans(request.tokens.length, groups, request.spans, request.computeFrom);
  request.nextSpan = 0;
  request.nextToken = 0;
  request.needsPlan = false;
}

/**
 * Looks up blocks as an admission does. Blocks that a window or state group released may still be cached, another block may have
 * the content of an invalid block, and requests that were admitted before may compute what this request needs too, such as the tokens
 * after a load that they share. Blocks of requests that were admitted later are excluded: these may wait for this request.
 */
function findAgain(parts: KvParts, proposals: readonly GroupProposal[], request: KvRequest): void {
  for (let group = groupIndex(0); group < proposals.length; group++) {
    const proposal = proposals[group]!;
    if (parts.groups[group]!.allocatesAll) {
      takeDuplicates(parts, proposal, request, group);
      continue;
    }
    const chain = request.chains[group]!;
    chain.extend(request.tokens);
    const count = Math.min(proposal.indexCount, request.reusableBlocks(chain));
    for (let index = blockIndex(0); index < count; index++) {
      if (proposal.validTokens[index] === proposal.blockSize) continue;
      let block = parts.cached.find(group, chain.words, index);
      if (block === NULL_BLOCK) block = computedBefore(parts, request, parts.computing.find(group, chain.words, index));
      if (block !== NULL_BLOCK) proposal.set(index, block, proposal.blockSize);
    }
  }
}

/** The block, if a request that was admitted before computes it. */
function computedBefore({ residency, requests }: KvParts, { admission }: KvRequest, block: BlockId): BlockId {
  const owner = block === NULL_BLOCK || residency.isLoading(block) ? undefined : residency.ownerOf(block);
  return owner !== undefined && requests[owner]!.admission < admission ? block : NULL_BLOCK;
}

/**
 * Applies the proposal to the blocks of a group: those in the table, reserved and kept ones. Of two states in the same block,
 * the table gets the one from which the earlier span starts. Blocks that the plan continues to fill stay.
 */
function applyPlan(parts: KvParts, proposal: GroupProposal, request: KvRequest, group: GroupIndex): void {
  const { residency, computing, pool } = parts;
  const { blockSize } = proposal;
  const table = request.tables[group]!;
  const unneeded = takeBlocks(request, group);
  for (const place of wantedBlocks(proposal, group)) {
    const at = unneeded.findIndex(({ block }) => block === place.block);
    if (at === -1) pool.reference(place.block);
    else unneeded.splice(at, 1);
    if (table.at(place.index) === NULL_BLOCK) putBack(request, place);
    else request.reserved.push(place);
  }
  for (const place of unneeded) {
    const { index, block } = place;
    const isFilled =
      residency.isFilledBy(block, request.slot) &&
      request.spans.overlaps(index * blockSize, (index + 1) * blockSize) &&
      table.at(index) === NULL_BLOCK;
    if (isFilled) putBack(request, place);
    else setAside(parts, request, place);
  }
  for (let index = blockIndex(request.firstAllocated[group]!); index < table.length; index++) {
    const block = table.at(index);
    if (block === NULL_BLOCK || !residency.isFilledBy(block, request.slot) || !computing.has(block)) continue;
    const first = index * blockSize + residency.validTokens[block]!;
    if (!request.spans.covers(first, (index + 1) * blockSize))
      withdrawComputing(parts, request, { group, index, block });
  }
}

/** The blocks of a group that the request has. Takes them from the table, and from the reserved and kept blocks. */
function takeBlocks(request: KvRequest, group: GroupIndex): PlacedBlock[] {
  const taken: PlacedBlock[] = [];
  const table = request.tables[group]!;
  for (let index = blockIndex(request.firstAllocated[group]!); index < table.length; index++) {
    const block = table.at(index);
    if (block === NULL_BLOCK) continue;
    taken.push({ group, index, block });
    table.set(index, NULL_BLOCK);
  }
  for (const places of [request.reserved, request.kept])
    for (let i = places.length - 1; i >= 0; i--) if (places[i]!.group === group) taken.push(...places.splice(i, 1));
  return taken;
}

/** The blocks of the proposal in the order of their last tokens. */
function wantedBlocks({ blocks, indexCount, running }: GroupProposal, group: GroupIndex): PlacedBlock[] {
  const wanted: PlacedBlock[] = [];
  const states = [...running].sort((a, b) => a.position - b.position);
  let next = 0;
  for (let index = blockIndex(0); index < indexCount; index++) {
    for (; next < states.length && states[next]!.index === index; next++)
      wanted.push({ group, index, block: states[next]!.block });
    const block = blocks[index] as BlockId;
    if (block !== NULL_BLOCK) wanted.push({ group, index, block });
  }
  return wanted;
}

function putBack(request: KvRequest, { group, index, block }: PlacedBlock): void {
  request.tables[group]!.set(index, block);
  request.firstAllocated[group] = Math.min(request.firstAllocated[group]!, index);
}

/** Reads the valid tokens of a request from its blocks. Blocks that other requests or transfers fill count as valid. */
export function readTables(parts: KvParts, groups: readonly GroupProposal[], request: KvRequest): void {
  for (let group = groupIndex(0); group < groups.length; group++) {
    const proposal = groups[group]!;
    const table = request.tables[group]!;
    proposal.reset(table.length);
    for (let index = blockIndex(request.firstAllocated[group]!); index < table.length; index++)
      if (table.at(index) !== NULL_BLOCK) readBlock(parts, proposal, request, { group, index, block: table.at(index) });
  }
  for (const place of request.reserved) readBlock(parts, groups[place.group]!, request, place);
  for (const place of request.kept) readBlock(parts, groups[place.group]!, request, place);
}

/** Of several blocks at one place, the proposal gets the one with more valid tokens, and all running states. */
function readBlock({ residency }: KvParts, proposal: GroupProposal, request: KvRequest, place: PlacedBlock): void {
  const { index, block } = place;
  const { blockSize } = proposal;
  const valid = residency.isFilledBy(block, request.slot) ? residency.validTokens[block]! : blockSize;
  if (proposal.kind === 'state' && valid < blockSize) {
    if (valid > 0) proposal.running.push({ index, block, position: index * blockSize + valid });
  } else if (proposal.blocks[index] === NULL_BLOCK || proposal.validTokens[index]! < valid)
    proposal.set(index, block, valid);
}

/**
 * The first position whose block another request or a load must fill first. Tokens from there on cannot be scheduled
 * yet.
 */
export function awaitedFrom({ residency }: KvParts, request: KvRequest): number {
  for (; request.nextAwaited < request.awaited.length; request.nextAwaited++) {
    const { block, start, blockSize } = request.awaited[request.nextAwaited]!;
    if (residency.isOwned(block) && residency.scheduledTokens[block] !== blockSize) return start;
  }
  return Infinity;
}

function collectAwaited({ residency, spec }: KvParts, request: KvRequest): void {
  request.awaited.length = 0;
  request.nextAwaited = 0;
  for (const { group, index, block } of request.reserved) {
    if (!residency.isOwned(block) || residency.isFilledBy(block, request.slot)) continue;
    const { blockSize } = spec.groups[group]!;
    request.awaited.push({ block, start: index * blockSize, blockSize });
  }
  for (let group = groupIndex(0); group < request.tables.length; group++) {
    const { blockSize } = spec.groups[group]!;
    const table = request.tables[group]!;
    for (let index = blockIndex(request.firstAllocated[group]!); index < table.length; index++) {
      const block = table.at(index);
      if (block === NULL_BLOCK || !residency.isOwned(block) || residency.isFilledBy(block, request.slot)) continue;
      request.awaited.push({ block, start: index * blockSize, blockSize });
    }
  }
  if (request.tables.length > 1) request.awaited.sort((a, b) => a.start - b.start);
}

const nothingFound: readonly never[] = [];
