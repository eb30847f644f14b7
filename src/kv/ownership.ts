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
export function leavePage(parts: KvParts, owner: KvRequest, place: PlacedBlock): void {
  const { page } = place;
  if (parts.pool.references(page) > 1) {
    if (parts.groups[place.group]!.takesAllAtOnce || parts.residency.isLoading(page)) {
      bequeath(parts, owner, place);
      return;
    }
    dropFromOthers(parts, owner, place);
  }
  if (parts.residency.isLoading(page)) parts.residency.stopLoading(page);
  parts.residency.disown(page, owner.slot);
  if (parts.computing.has(page)) parts.computing.remove(page);
}

/** The owner goes on without filling the page whole (it has found another way): nobody may wait for that. */
export function breakPromise(parts: KvParts, owner: KvRequest, place: PlacedBlock): void {
  dropFromOthers(parts, owner, place);
  parts.computing.remove(place.page);
}

function bequeath(parts: KvParts, owner: KvRequest, place: PlacedBlock): void {
  const { index, page } = place;
  let heir: KvRequest | undefined;
  for (const other of parts.requests) {
    if (other === undefined || other === owner || !holds(other, place)) continue;
    if (heir === undefined || other.admission < heir.admission) heir = other;
  }
  assert(heir !== undefined, `page ${page} is shared, but nobody has it at block ${index}`);
  parts.residency.bequeath(page, owner.slot, heir.slot);
  heir.needsPlan = true;
}

function dropFromOthers(parts: KvParts, owner: KvRequest, place: PlacedBlock): void {
  for (const other of parts.requests) {
    if (other === undefined || other === owner) continue;
    if (!holds(other, place)) continue;
    other.tables[place.group]!.set(place.index, NULL_BLOCK);
    parts.pool.release(place.page);
    other.needsPlan = true;
  }
}

function holds(request: KvRequest, { group, index, page }: PlacedBlock): boolean {
  const table = request.tables[group]!;
  return index < table.length && table.at(index) === page;
}
