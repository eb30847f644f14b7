import type { BlockPlace } from '../core/block-place.ts';
import { type BlockId, blockIndex, type GroupIndex, groupIndex, NULL_BLOCK } from '../core/ids.ts';
import { chooseLoads } from './choose-loads.ts';
import { releaseBlock, releaseReserved } from './coverage.ts';
import type { GroupProposal } from './group.ts';
import type { KvParts } from './kv-parts.ts';
import type { KvRequest } from './kv-request.ts';
import { withdrawComputing } from './ownership.ts';
import { planSpans } from './planner.ts';
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
  releaseReserved(parts, request);
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
  planSpans(request.tokens.length, groups, request.spans);
  request.nextSpan = 0;
  request.nextToken = 0;
  request.needsPlan = false;
}

/**
 * Looks up cached blocks. Blocks that a window or state group released may still be cached, and another block may have
 * the content of an invalid block. Blocks that other requests compute are excluded: these may wait for this request.
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
    for (let index = blockIndex(0); index < Math.min(proposal.indexCount, chain.count); index++) {
      if (proposal.blocks[index] !== NULL_BLOCK) continue;
      const block = parts.cached.find(group, chain.words, index);
      if (block !== NULL_BLOCK) proposal.set(index, block, proposal.blockSize);
    }
  }
}

/** Applies the proposal to the block table of a group. Blocks that the plan continues to fill stay. */
function applyPlan(parts: KvParts, proposal: GroupProposal, request: KvRequest, group: GroupIndex): void {
  const { residency, computing, pool } = parts;
  const { blockSize } = proposal;
  const table = request.tables[group]!;
  for (let index = blockIndex(0); index < table.length; index++) {
    const wanted = proposal.blocks[index] as BlockId;
    const block = table.at(index);
    if (block === NULL_BLOCK && wanted !== NULL_BLOCK) {
      pool.reference(wanted);
      table.set(index, wanted);
      request.firstAllocated[group] = Math.min(request.firstAllocated[group]!, index);
    }
    if (block === NULL_BLOCK) continue;
    const start = index * blockSize;
    const isOwn = residency.isFilledBy(block, request.slot);
    if (wanted === NULL_BLOCK && !(isOwn && request.spans.overlaps(start, start + blockSize))) {
      releaseBlock(parts, request, { group, index, block });
      table.set(index, NULL_BLOCK);
    } else if (
      isOwn &&
      computing.has(block) &&
      !request.spans.covers(start + residency.validTokens[block]!, start + blockSize)
    )
      withdrawComputing(parts, request, { group, index, block });
  }
}

/** Reads the valid tokens of a request from its tables. Blocks that other requests or transfers fill count as valid. */
export function readTables(parts: KvParts, groups: readonly GroupProposal[], request: KvRequest): void {
  const { residency } = parts;
  for (let group = groupIndex(0); group < groups.length; group++) {
    const proposal = groups[group]!;
    const table = request.tables[group]!;
    proposal.reset(table.length);
    for (let index = blockIndex(request.firstAllocated[group]!); index < table.length; index++) {
      const block = table.at(index);
      if (block === NULL_BLOCK) continue;
      const isOwn = residency.isFilledBy(block, request.slot);
      proposal.set(index, block, isOwn ? residency.validTokens[block]! : proposal.blockSize);
    }
  }
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
