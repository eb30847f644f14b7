import { assert } from '../base/assert.ts';
import type { PlacedBlock } from '../core/block-place.ts';
import { NULL_BLOCK } from '../core/ids.ts';
import type { KvParts } from './kv-parts.ts';
import type { KvRequest } from './kv-request.ts';

/**
 * What becomes of a page that its owner will not fill after all: the owner ends or is preempted.
 * Called while the owner still refers to the page.
 *
 * In a group that every sharer needs whole, the page passes to the sharer that was admitted first, with what is in it.
 * So a page's owner was always admitted before all others that have it, those who wait wait for earlier ones, and nobody
 * waits in a circle. So does a page that is being loaded: the transfer goes on for whoever waits for it. Elsewhere (windows, states) a sharer may not need all of the page: they drop it and plan for themselves.
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

/** The owner goes on without filling the page whole (it has found another way): nobody may wait for that. */
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
  assert(newOwner !== undefined, `page ${block} is shared, but nobody has it at block ${index}`);
  parts.residency.transferOwnership(block, owner.slot, newOwner.slot);
  newOwner.needsPlan = true;
}

function dropFromOthers(parts: KvParts, owner: KvRequest, place: PlacedBlock): void {
  for (const other of parts.requests) {
    if (other === undefined || other === owner) continue;
    if (!refersTo(other, place)) continue;
    other.tables[place.group]!.set(place.index, NULL_BLOCK);
    parts.pool.release(place.block);
    other.needsPlan = true;
  }
}

function refersTo(request: KvRequest, { group, index, block }: PlacedBlock): boolean {
  const table = request.tables[group]!;
  return index < table.length && table.at(index) === block;
}
