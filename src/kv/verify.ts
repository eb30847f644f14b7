import { assert } from '../base/assert.ts';
import { type BlockId, NULL_BLOCK } from '../core/ids.ts';
import { GroupProposal } from './group.ts';
import type { KvParts } from './kv-parts.ts';
import type { PageTable } from './page-table.ts';
import { readTables } from './plan-request.ts';
import { planSpans } from './planner.ts';
import { SpanList } from './span-list.ts';

/**
 * Recounts what the cache keeps incrementally. What it cannot see is whether the bytes in a page are right; the fake
 * runner's hashes see that.
 */
/**
 * I3: what a request has left to compute is what the planner would say now, no more and no less, whatever has been
 * computed, lost, inherited or let go since it was planned.
 */
export function verifyPlans(parts: KvParts): void {
  const { proposals: groups, wanted } = scratchOf(parts);
  for (const request of parts.requests) {
    if (request === undefined || !request.admitted || request.needsPlan) continue;
    // What waits aside is not in the tables, so the tables do not tell the whole truth until it is back.
    if (request.parked.length > 0) continue;
    readTables(parts, groups, request);
    planSpans(request.tokens.length, groups, wanted);
    if (request.hasLeft(wanted)) continue;
    const [rest, right] = [JSON.stringify(request.rest()), JSON.stringify(wanted.toArray())];
    assert(false, `I3: ${rest} are left to compute, the planner says ${right}`);
  }
}

export function verifyKvCache(parts: KvParts): void {
  const { pool, residency, published, computing, spec } = parts;
  pool.checkInvariants();
  published.checkInvariants();
  computing.checkInvariants();
  const scratch = scratchOf(parts);
  const references = scratch.references.fill(0);
  const sizes = scratch.sizes.fill(0);
  const owned = scratch.owned.fill(0);
  for (const request of parts.requests) {
    if (request === undefined) continue;
    for (const { page, group } of request.parked) {
      references[page]!++;
      sizes[page] = spec.groups[group]!.blockSize;
      if (residency.isOwnedBy(page, request.slot)) owned[page] = 1;
    }
    for (let g = 0; g < request.tables.length; g++) {
      const table: PageTable = request.tables[g]!;
      const { blockSize } = spec.groups[g]!;
      if (!request.admitted && table.length > 0) fail('pages without admission');
      for (let block = 0; block < table.length; block++) {
        const page = table.at(block);
        if (page === NULL_BLOCK) continue;
        if (block < request.firstHeld[g]!) fail(`block ${block} has a page below the first that is held`);
        if (sizes[page] !== 0 && sizes[page] !== blockSize) fail(`page ${page} serves groups of different block sizes`);
        references[page]!++;
        sizes[page] = blockSize;
        if (residency.isOwnedBy(page, request.slot)) owned[page] = 1;
      }
    }
  }
  for (let id = NULL_BLOCK + 1; id < spec.pageCount; id++) {
    const page = id as BlockId;
    if (references[page] !== pool.references(page))
      fail(`I7: page ${page}: ${references[page]} tables, count ${pool.references(page)}`);
    if (residency.isOwned(page) !== (owned[page] === 1)) fail(`page ${page}: its owner does not hold it`);
    if (residency.isLoading(page) && owned[page] === 0) fail(`page ${page} is loaded for nobody`);
    if (residency.isLoading(page) && !pool.isHeld(page)) fail(`I5: page ${page} is loaded, but not held`);
    if (references[page] === 0) {
      if (computing.has(page)) fail(`page ${page} is promised, but nobody computes it`);
      continue;
    }
    const whole = residency.validTo[page] === sizes[page];
    if (published.has(page) && !whole) fail(`I4: page ${page} is published before it is whole`);
    if (!whole && !residency.isOwned(page)) fail(`page ${page} is not whole, and nobody fills it`);
    if (computing.has(page) && !residency.isOwned(page)) fail(`page ${page} is promised, but nobody fills it`);
    if (computing.has(page) && published.has(page)) fail(`page ${page} is both promised and published`);
  }
}

/** What the checks of one cache count in; made for its first check, because most caches are never checked. */
interface Scratch {
  readonly proposals: readonly GroupProposal[];
  readonly wanted: SpanList;
  /** By page: tables that hold it, tokens of its block, whether its owner holds it. */
  readonly references: Int32Array;
  readonly sizes: Int32Array;
  readonly owned: Uint8Array;
}

const scratches = new WeakMap<KvParts, Scratch>();

function scratchOf(parts: KvParts): Scratch {
  const { groups, pageCount } = parts.spec;
  let scratch = scratches.get(parts);
  if (scratch === undefined) {
    scratch = {
      proposals: groups.map((group) => new GroupProposal(group)),
      wanted: new SpanList(),
      references: new Int32Array(pageCount),
      sizes: new Int32Array(pageCount),
      owned: new Uint8Array(pageCount),
    };
    scratches.set(parts, scratch);
  }
  return scratch;
}

/** For loops over all pages: the sentence is made only when it is needed. */
function fail(message: string): never {
  assert(false, message);
}
