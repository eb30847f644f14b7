import type { BlockPlace, PlacedBlock } from '../core/block-place.ts';
import { type BlockId, NULL_BLOCK } from '../core/ids.ts';
import { InvalidBlocks } from '../core/invalid-blocks.ts';
import { releasePage } from './coverage.ts';
import type { KvParts } from './kv-parts.ts';
import type { KvRequest } from './kv-request.ts';

/** Rows of a step do not count, and these pages are not filled: requests that counted on them look for another owner. */
export function replanThoseAwaiting({ requests }: KvParts, invalid: InvalidBlocks): void {
  for (const other of requests) if (other !== undefined && countsOn(other, invalid)) other.needsPlan = true;
}

function countsOn({ awaited, nextAwaited }: KvRequest, invalid: InvalidBlocks): boolean {
  for (let i = 0; i < nextAwaited; i++) if (invalid.has(awaited[i]!.page)) return true;
  return false;
}

/**
 * The one failure path: a load that failed, a page that was corrupt, a worker that came back empty all become "the
 * content of these pages is not valid", and every request that has one plans again.
 *
 * Takes the pages out of the index and empties them. Where a full group's page has users, the one that was admitted
 * first fills it again and the others wait for that (I1); in other groups its users let go of it. Returns all users:
 * they must plan again. No step is out. O(pages of all tables).
 */
export function invalidatePages(parts: KvParts, pages: readonly BlockId[]): KvRequest[] {
  const { published, pool, requests, residency } = parts;
  const bad = new InvalidBlocks(parts.spec, pages);
  for (const page of bad.blocks) {
    if (published.has(page)) pool.unpublish(page);
    residency.empty(page);
  }
  const users = new Set<KvRequest>();
  for (const request of requests) {
    if (request === undefined) continue;
    for (let g = 0; g < request.tables.length; g++) if (invalidateIn(parts, request, g, bad)) users.add(request);
    for (let i = request.parked.length - 1; i >= 0; i--) {
      const { group, index: block, page } = request.parked[i]!;
      if (!bad.has(page)) continue;
      request.parked.splice(i, 1);
      releasePage(parts, request, { group, index: block, page });
      users.add(request);
    }
  }
  for (const user of users) user.needsPlan = true;
  return [...users];
}

/** Where the request has a page of the set. O(blocks of the request). */
export function blocksOn({ groups }: KvParts, request: KvRequest, bad: InvalidBlocks): BlockPlace[] {
  const found: BlockPlace[] = [];
  for (let group = 0; group < groups.length; group++) {
    const table = request.tables[group]!;
    for (let block = request.firstHeld[group]!; block < table.length; block++)
      if (bad.has(table.at(block))) found.push({ group, index: block });
  }
  for (const { group, index: block, page } of request.parked) if (bad.has(page)) found.push({ group, index: block });
  return found;
}

function invalidateIn(parts: KvParts, request: KvRequest, g: number, bad: InvalidBlocks): boolean {
  const table = request.tables[g]!;
  let isUser = false;
  for (let block = request.firstHeld[g]!; block < table.length; block++) {
    const page = table.at(block);
    if (!bad.has(page)) continue;
    isUser = true;
    if (!parts.groups[g]!.takesAllAtOnce) {
      if (parts.residency.isOwnedBy(page, request.slot)) continue;
      releasePage(parts, request, { group: g, index: block, page });
      table.set(block, NULL_BLOCK);
    } else claim(parts, request, { group: g, index: block, page });
  }
  return isUser;
}

/** Makes the request the page's owner if nobody is, or if the owner so far was admitted after it. */
function claim(parts: KvParts, request: KvRequest, { group, index: block, page }: PlacedBlock): void {
  const { residency, computing } = parts;
  if (residency.isOwned(page)) {
    const owner = parts.requests.find((other) => other !== undefined && residency.isOwnedBy(page, other.slot));
    if (owner === undefined || owner.admission <= request.admission) return;
    residency.bequeath(page, owner.slot, request.slot);
    return;
  }
  residency.begin(page, request.slot);
  const chain = request.chains[group]!;
  if (parts.enablePrefixCaching && block < chain.count) computing.insert(page, group, chain.words, block);
}
