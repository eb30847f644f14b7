import { assert } from '../base/assert.ts';
import { type BlockId, NULL_BLOCK } from '../core/ids.ts';
import type { BlockTableBuffer } from './block-table.ts';
import { GroupProposal } from './group.ts';
import type { KvParts } from './kv-parts.ts';
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
    if (request.reserved.length > 0) continue;
    readTables(parts, groups, request);
    planSpans(request.tokens.length, groups, wanted);
    if (request.hasLeft(wanted)) continue;
    const [rest, right] = [JSON.stringify(request.rest()), JSON.stringify(wanted.toArray())];
    assert(false, `I3: ${rest} are left to compute, the planner says ${right}`);
  }
}

export function verifyKvCache(parts: KvParts): void {
  const { pool, residency, cached, computing, spec } = parts;
  pool.checkInvariants();
  cached.checkInvariants();
  computing.checkInvariants();
  const scratch = scratchOf(parts);
  const references = scratch.references.fill(0);
  const sizes = scratch.sizes.fill(0);
  const owned = scratch.owned.fill(0);
  for (const request of parts.requests) {
    if (request === undefined) continue;
    for (const { block, group } of request.reserved) {
      references[block]!++;
      sizes[block] = spec.groups[group]!.blockSize;
      if (residency.isOwnedBy(block, request.slot)) owned[block] = 1;
    }
    for (let group = 0; group < request.tables.length; group++) {
      const table: BlockTableBuffer = request.tables[group]!;
      const { blockSize } = spec.groups[group]!;
      if (!request.admitted && table.length > 0) fail('pages without admission');
      for (let index = 0; index < table.length; index++) {
        const block = table.at(index);
        if (block === NULL_BLOCK) continue;
        if (index < request.firstAllocated[group]!) fail(`block ${index} has a page below the first that is held`);
        if (sizes[block] !== 0 && sizes[block] !== blockSize)
          fail(`page ${block} serves groups of different block sizes`);
        references[block]!++;
        sizes[block] = blockSize;
        if (residency.isOwnedBy(block, request.slot)) owned[block] = 1;
      }
    }
  }
  for (let id = NULL_BLOCK + 1; id < spec.blockCount; id++) {
    const block = id as BlockId;
    if (references[block] !== pool.references(block))
      fail(`I7: page ${block}: ${references[block]} tables, count ${pool.references(block)}`);
    if (residency.isOwned(block) !== (owned[block] === 1)) fail(`page ${block}: its owner does not hold it`);
    if (residency.isLoading(block) && owned[block] === 0) fail(`page ${block} is loaded for nobody`);
    if (residency.isLoading(block) && !pool.isPinned(block)) fail(`I5: page ${block} is loaded, but not held`);
    if (references[block] === 0) {
      if (computing.has(block)) fail(`page ${block} is promised, but nobody computes it`);
      continue;
    }
    const whole = residency.validTokens[block] === sizes[block];
    if (cached.has(block) && !whole) fail(`I4: page ${block} is published before it is whole`);
    if (!whole && !residency.isOwned(block)) fail(`page ${block} is not whole, and nobody fills it`);
    if (computing.has(block) && !residency.isOwned(block)) fail(`page ${block} is promised, but nobody fills it`);
    if (computing.has(block) && cached.has(block)) fail(`page ${block} is both promised and published`);
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
  const { groups, blockCount } = parts.spec;
  let scratch = scratches.get(parts);
  if (scratch === undefined) {
    scratch = {
      proposals: groups.map((group) => new GroupProposal(group)),
      wanted: new SpanList(),
      references: new Int32Array(blockCount),
      sizes: new Int32Array(blockCount),
      owned: new Uint8Array(blockCount),
    };
    scratches.set(parts, scratch);
  }
  return scratch;
}

/** For loops over all pages: the sentence is made only when it is needed. */
function fail(message: string): never {
  assert(false, message);
}
