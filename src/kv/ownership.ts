import { assert } from '../base/assert.ts';
import type { PlacedBlock } from '../core/block-place.ts';
import { NULL_BLOCK } from '../core/ids.ts';
import type { KvParts } from './kv-parts.ts';
import type { KvRequest } from './kv-request.ts';

/**
 * The owner ends or is preempted before it has filled the block. Called while the owner still references the block.
 *
 * In a full group, and for a loading block in any group, the request that was admitted first becomes the owner. It
 * continues with the tokens that are valid, or waits for the load. So the owner of a block was admitted before all
 * other requests that have it, and requests cannot wait for each other in a cycle.
 *
 * In a window or state group, other requests may not need all of the block. They drop it and plan again.
 */
export function giveUpOwnership(parts: KvParts, owner: KvRequest, place: PlacedBlock): void {
  const { block } = place;
  if (parts.pool.references(block) > 1) {
    if (parts.groups[place.group]!.allocatesAll || parts.residency.isLoading(block)) {
      transferOwnership(parts, owner, place);
      return;
    }
    dropFromOthers(parts, owner, place);
  }
  if (parts.residency.isLoading(block)) parts.residency.stopLoading(block);
  parts.residency.clearOwner(block, owner.slot);
  if (parts.computing.has(block)) parts.computing.remove(block);
}

/** The owner's new plan does not fill all of the block, so no other request may wait for it. */
export function withdrawComputing(parts: KvParts, owner: KvRequest, place: PlacedBlock): void {
  dropFromOthers(parts, owner, place);
  parts.computing.remove(place.block);
}

function transferOwnership(parts: KvParts, owner: KvRequest, place: PlacedBlock): void {
  const { index, block } = place;
  let newOwner: KvRequest | undefined;
  for (const other of parts.requests) {
    if (other === undefined || other === owner || !refersTo(other, place)) continue;
    if (newOwner === undefined || other.admission < newOwner.admission) newOwner = other;
  }
  assert(newOwner !== undefined, `block ${block} is shared, but no other request has it at index ${index}`);
  parts.residency.transferOwnership(block, owner.slot, newOwner.slot);
  newOwner.needsPlan = true;
}

function dropFromOthers(parts: KvParts, owner: KvRequest, place: PlacedBlock): void {
  for (const other of parts.requests) {
    if (other === undefined || other === owner) continue;
    if (!refersTo(other, place)) continue;
    const reserved = other.reserved.findIndex(({ block }) => block === place.block);
    if (reserved === -1) other.tables[place.group]!.set(place.index, NULL_BLOCK);
    else other.reserved.splice(reserved, 1);
    parts.pool.release(place.block);
    other.needsPlan = true;
  }
}

function refersTo(request: KvRequest, { group, index, block }: PlacedBlock): boolean {
  const table = request.tables[group]!;
  if (index < table.length && table.at(index) === block) return true;
  return request.reserved.some((place) => place.block === block);
}
