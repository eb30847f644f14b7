import type { BlockPlace, PlacedBlock } from '../core/block-place.ts';
import { type BlockId, blockIndex, groupIndex, NULL_BLOCK } from '../core/ids.ts';
import type { GroupProposal } from './group.ts';
import type { KvParts } from './kv-parts.ts';
import type { KvRequest } from './kv-request.ts';
import { replaceBusyBlock, usersOf } from './loading.ts';
import { replanRequest } from './plan-request.ts';

/**
 * The full blocks of an admitted request without valid tokens whose tokens it must compute: a transfer could load them
 * instead. No other block can make the plan shorter, because the plan needs none of its tokens.
 *
 *   plan      ........^^^^^^^^....^^^^      ^ = tokens that are computed
 *   full      ############....########      . = a block without valid tokens: asked for below ^
 *   window    ............##......####
 *   state     ...........#............
 *
 * If other groups than full groups exist, the caller gives the blocks that a connector promises to `startLoads`, which
 * loads those that shorten the plan. O(blocks).
 */
export function uncomputedBlocks({ groups, spec, residency }: KvParts, request: KvRequest): BlockPlace[] {
  const places: BlockPlace[] = [];
  const next = request.nextPosition();
  for (let group = groupIndex(0); group < groups.length; group++) {
    const table = request.tables[group]!;
    const { blockSize } = spec.groups[group]!;
    const count = Math.min(table.length, request.reusableBlocks(request.chains[group]!));
    for (let index = blockIndex(0); index < count; index++) {
      const block = table.at(index);
      // The checkpoint at the end of a block may be nearer than the running state in it.
      const validMax = spec.groups[group]!.kind === 'state' ? blockSize - 1 : 0;
      const isUncomputed =
        block === NULL_BLOCK ||
        (residency.isFilledBy(block, request.slot) && residency.validTokens[block]! <= validMax);
      if (!isUncomputed) continue;
      // A table of a full group has NULL_BLOCK if a transfer still pins the former block and the pool had no other.
      const isComputed = (end: number): boolean =>
        end > next && request.spans.overlaps(Math.max(index * blockSize, next), end);
      if (groups[group]!.allocatesAll || isComputed((index + 1) * blockSize)) places.push({ group, index });
    }
  }
  return places;
}

/**
 * Starts loads of these places, which `uncomputedBlocks` just returned, into the blocks that the request has there. A
 * block that an earlier transfer still pins is replaced. If the pool has no other block, the request computes the
 * tokens. In a model with other groups than full groups, only blocks are loaded that shorten the plan, and only if the
 * pool has room for all of them and for the tokens that are computed then.
 */
export function startLoads(
  parts: KvParts,
  proposals: readonly GroupProposal[],
  request: KvRequest,
  found: readonly BlockPlace[],
): PlacedBlock[] {
  const isSelective = parts.groups.some(({ allocatesAll }) => !allocatesAll);
  const places = isSelective && found.length > 0 ? neededLoads(parts, proposals, request, found) : found;
  const placed: PlacedBlock[] = [];
  for (const place of places) {
    const block = startLoad(parts, request, place);
    if (block !== undefined) placed.push({ ...place, block });
  }
  if (placed.length > 0) request.needsPlan = true;
  return placed;
}

/** Returns the block that the load fills; undefined if the pool has none. */
function startLoad(parts: KvParts, request: KvRequest, { group, index }: BlockPlace): BlockId | undefined {
  const { residency, computing, pool } = parts;
  const table = request.tables[group]!;
  if (hasRunningState(parts, request, { group, index })) return loadBesideState(parts, request, { group, index });
  const isBusy = table.at(index) !== NULL_BLOCK && pool.isPinned(table.at(index));
  if ((isBusy || table.at(index) === NULL_BLOCK) && pool.available === 0) return undefined;
  if (isBusy) {
    const users = usersOf(parts, table.at(index));
    replaceBusyBlock(parts, table.at(index), users);
    for (const user of users) user.request.needsPlan = true;
  }
  if (table.at(index) === NULL_BLOCK) {
    table.set(index, pool.allocate());
    residency.assignOwner(table.at(index), request.slot);
    request.firstAllocated[group] = Math.min(request.firstAllocated[group]!, index);
  }
  const block = table.at(index);
  // Later requests find the block by its key, and wait for the load.
  if (!computing.has(block)) computing.insert(block, group, request.chains[group]!.words, index);
  residency.startLoading(block, 0);
  return block;
}

/** Whether the block at this place has a running state, which a load would overwrite. */
function hasRunningState({ residency, spec }: KvParts, request: KvRequest, { group, index }: BlockPlace): boolean {
  const block = request.tables[group]!.at(index);
  if (block === NULL_BLOCK || spec.groups[group]!.kind !== 'state') return false;
  return residency.isFilledBy(block, request.slot) && residency.validTokens[block]! > 0;
}

/** Loads a checkpoint into a reserved block, for a later span than the one that starts from the running state. */
function loadBesideState(parts: KvParts, request: KvRequest, { group, index }: BlockPlace): BlockId | undefined {
  const { residency, computing, pool } = parts;
  if (pool.available === 0) return undefined;
  const block = pool.allocate();
  residency.assignOwner(block, request.slot);
  request.reserved.push({ group, index, block });
  computing.insert(block, group, request.chains[group]!.words, index);
  residency.startLoading(block, 0);
  return block;
}

/** Those of the found blocks that the shortest plan loads; none if the pool has no room for them. */
function neededLoads(
  parts: KvParts,
  proposals: readonly GroupProposal[],
  request: KvRequest,
  found: readonly BlockPlace[],
): BlockPlace[] {
  replanRequest(parts, proposals, request, found);
  // This plan counts on the loads, which may not begin.
  request.needsPlan = true;
  const places: BlockPlace[] = [];
  let needed = 0;
  for (let group = groupIndex(0); group < proposals.length; group++) {
    const proposal = proposals[group]!;
    // The request has the blocks of the proposal.
    const isAvailable = (): boolean => false;
    if (!parts.groups[group]!.allocatesAll)
      needed += parts.groups[group]!.blocksTaken(proposal, request.spans, isAvailable);
    for (let index = blockIndex(0); index < proposal.indexCount; index++) {
      if (proposal.external[index] !== 1) continue;
      places.push({ group, index });
      // A block of a full group may be replaced, because a transfer still writes it.
      if (parts.groups[group]!.allocatesAll) needed++;
    }
  }
  return needed <= parts.pool.available ? places : [];
}
