import { type BlockId, NULL_BLOCK } from '../core/ids.ts';
import type { Span } from '../core/step.ts';
import { releasePage } from './coverage.ts';
import type { KvParts } from './kv-parts.ts';
import type { KvRequest } from './kv-request.ts';
import type { BlockPlace } from './proposal.ts';

/**
 * The one failure path: a load that failed, a page that was corrupt, a worker that came back empty all become "the
 * content of these pages is not valid", and every request that has one plans again.
 */
export class PageSet {
  readonly #marks: Uint8Array;
  readonly #pages: BlockId[] = [];

  constructor(pageCount: number, pages: readonly BlockId[]) {
    this.#marks = new Uint8Array(pageCount);
    for (const page of pages) this.add(page);
  }

  get pages(): readonly BlockId[] {
    return this.#pages;
  }

  has(page: BlockId): boolean {
    return this.#marks[page] === 1;
  }

  add(page: BlockId): void {
    if (page === NULL_BLOCK || this.has(page)) return;
    this.#marks[page] = 1;
    this.#pages.push(page);
  }
}

/**
 * The first of the request's rows in a step that depends on a page of the set: this row and all behind it do not count.
 * Infinity when none does. A request that the runner left out has computed none (`wasLeftOut`). The pages that these rows were to fill join the set, for those who rode on them in the
 * same step: ask in batch order.
 */
export function firstSpoiledRow(
  parts: KvParts,
  request: KvRequest,
  spans: readonly Span[],
  spoiled: PageSet,
  wasLeftOut = false,
): number {
  let first: number = wasLeftOut ? spans[0]!.start : Infinity;
  for (const { start, end } of spans) {
    if (first !== Infinity) break;
    for (let g = 0; g < parts.groups.length; g++) {
      const { blockSize } = parts.spec.groups[g]!;
      const table = request.tables[g]!;
      const last = Math.floor((end - 1) / blockSize);
      for (let block = parts.groups[g]!.firstKept(start); block <= last; block++) {
        if (!spoiled.has(table.at(block))) continue;
        first = Math.min(first, Math.max(start, block * blockSize));
        break;
      }
    }
  }
  if (first !== Infinity) spoilRows(parts, request, spans, first, spoiled);
  return first;
}

function spoilRows(parts: KvParts, request: KvRequest, spans: readonly Span[], first: number, spoiled: PageSet): void {
  for (const { start, end } of spans) {
    if (end <= first) continue;
    for (let g = 0; g < parts.groups.length; g++) {
      const { blockSize } = parts.spec.groups[g]!;
      const table = request.tables[g]!;
      for (let block = Math.floor(Math.max(start, first) / blockSize); block * blockSize < end; block++)
        if (parts.residency.isFilledBy(table.at(block), request.slot)) spoiled.add(table.at(block));
    }
  }
  // Others may have counted on these rows without having read them yet: they look again whom they wait for.
  for (const other of parts.requests) if (other !== undefined && countsOn(other, spoiled)) other.needsPlan = true;
}

function countsOn({ awaited, nextAwaited }: KvRequest, spoiled: PageSet): boolean {
  for (let i = 0; i < nextAwaited; i++) if (spoiled.has(awaited[i]!.page)) return true;
  return false;
}

/**
 * Takes the pages out of the index and empties them. Where a full group's page has users, the one that was admitted
 * first fills it again and the others wait for that (I1); in other groups its users let go of it. Returns all users:
 * they must plan again. No step is out. O(pages of all tables).
 */
export function invalidatePages(parts: KvParts, pages: readonly BlockId[]): KvRequest[] {
  const { published, pool, requests, residency } = parts;
  const bad = new PageSet(parts.spec.pageCount, pages);
  for (const page of bad.pages) {
    if (published.has(page)) pool.unpublish(page);
    residency.empty(page);
  }
  const users = new Set<KvRequest>();
  for (const request of requests) {
    if (request === undefined) continue;
    for (let g = 0; g < request.tables.length; g++) if (invalidateIn(parts, request, g, bad)) users.add(request);
    for (let i = request.parked.length - 1; i >= 0; i--) {
      const { group, block, page } = request.parked[i]!;
      if (!bad.has(page)) continue;
      request.parked.splice(i, 1);
      releasePage(parts, request, group, block, page);
      users.add(request);
    }
  }
  for (const user of users) user.needsPlan = true;
  return [...users];
}

/** Where the request has a page of the set. O(blocks of the request). */
export function blocksOn({ groups }: KvParts, request: KvRequest, bad: PageSet): BlockPlace[] {
  const found: BlockPlace[] = [];
  for (let group = 0; group < groups.length; group++) {
    const table = request.tables[group]!;
    for (let block = request.firstHeld[group]!; block < table.length; block++)
      if (bad.has(table.at(block))) found.push({ group, block });
  }
  for (const { group, block, page } of request.parked) if (bad.has(page)) found.push({ group, block });
  return found;
}

function invalidateIn(parts: KvParts, request: KvRequest, g: number, bad: PageSet): boolean {
  const table = request.tables[g]!;
  let isUser = false;
  for (let block = request.firstHeld[g]!; block < table.length; block++) {
    const page = table.at(block);
    if (!bad.has(page)) continue;
    isUser = true;
    if (!parts.groups[g]!.takesAllAtOnce) {
      if (parts.residency.isOwnedBy(page, request.slot)) continue;
      releasePage(parts, request, g, block, page);
      table.set(block, NULL_BLOCK);
    } else claim(parts, request, g, block, page);
  }
  return isUser;
}

/** Makes the request the page's owner if nobody is, or if the owner so far was admitted after it. */
function claim(parts: KvParts, request: KvRequest, g: number, block: number, page: BlockId): void {
  const { residency, computing } = parts;
  if (residency.isOwned(page)) {
    const owner = parts.requests.find((other) => other !== undefined && residency.isOwnedBy(page, other.slot));
    if (owner === undefined || owner.admission <= request.admission) return;
    residency.bequeath(page, owner.slot, request.slot);
    return;
  }
  residency.begin(page, request.slot);
  const chain = request.chains[g]!;
  if (parts.enablePrefixCaching && block < chain.count) computing.insert(page, g, chain.words, block);
}
