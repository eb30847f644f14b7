import { assert } from '../base/assert.ts';
import { type BlockId, blockIndex, groupIndex, NULL_BLOCK } from '../core/ids.ts';
import type { BlockTableBuffer } from './block-table.ts';
import { GroupProposal } from './group.ts';
import type { KvParts } from './kv-parts.ts';
import { readTables } from './plan-request.ts';
import { planSpans } from './planner.ts';
import { SpanList } from './span-list.ts';

/**
 * I3: the tokens that a request must still compute are exactly those that the planner returns now. Since the request
 * was planned, KV may have been computed, become invalid, been released or got another owner.
 */
export function verifyPlans(parts: KvParts): void {
  const { proposals: groups, wanted } = scratchOf(parts);
  for (const request of parts.requests) {
    if (request === undefined || !request.admitted || request.needsPlan) continue;
    readTables(parts, groups, request);
    planSpans(request.tokens.length, groups, wanted, request.computeFrom);
    if (request.hasLeft(wanted)) continue;
    const [rest, right] = [JSON.stringify(request.rest()), JSON.stringify(wanted.toArray())];
    assert(false, `I3: a request has ${rest} left to compute, but the planner returns ${right}`);
  }
}

/**
 * Recounts all that the cache updates incrementally. It does not check the bytes in blocks; the hashes of the
 * simulator's fake runner do.
 */
export function verifyKvCache(parts: KvParts): void {
  const { pool, residency, cached, computing, spec } = parts;
  pool.checkInvariants();
  cached.checkInvariants();
  computing.checkInvariants();
  parts.pins.checkInvariants();
  parts.wanted.checkInvariants(parts.requests);
  const scratch = scratchOf(parts);
  const references = scratch.references.fill(0);
  const sizes = scratch.sizes.fill(0);
  const owned = scratch.owned.fill(0);
  for (const request of parts.requests) {
    if (request === undefined) continue;
    for (const { block, group } of [...request.reserved, ...request.kept]) {
      references[block]!++;
      sizes[block] = spec.groups[group]!.blockSize;
      if (residency.isOwnedBy(block, request.slot)) owned[block] = 1;
    }
    for (let group = groupIndex(0); group < request.tables.length; group++) {
      const table: BlockTableBuffer = request.tables[group]!;
      const { blockSize } = spec.groups[group]!;
      if (!request.admitted && table.length > 0) fail('a request that is not admitted has blocks');
      for (let index = blockIndex(0); index < table.length; index++) {
        const block = table.at(index);
        if (block === NULL_BLOCK) continue;
        if (index < request.firstAllocated[group]!) fail(`index ${index} has a block, but is below firstAllocated`);
        if (sizes[block] !== 0 && sizes[block] !== blockSize)
          fail(`block ${block} is in tables of groups with different block sizes`);
        references[block]!++;
        sizes[block] = blockSize;
        if (residency.isOwnedBy(block, request.slot)) owned[block] = 1;
      }
    }
  }
  for (let id = NULL_BLOCK + 1; id < spec.blockCount; id++) {
    const block = id as BlockId;
    if (references[block] !== pool.references(block))
      fail(`I7: ${references[block]} tables have block ${block}, but its count is ${pool.references(block)}`);
    if (residency.isOwned(block) !== (owned[block] === 1)) fail(`block ${block} is not in a table of its owner`);
    if (residency.isLoading(block) && owned[block] === 0) fail(`block ${block} is loading, but has no owner`);
    if (residency.isLoading(block) && !pool.isPinned(block)) fail(`I5: block ${block} is loading, but is not pinned`);
    if (references[block] === 0) {
      if (computing.has(block)) fail(`block ${block} is announced, but no request has it`);
      continue;
    }
    const isValid = residency.validTokens[block] === sizes[block];
    if (cached.has(block) && !isValid) fail(`I4: block ${block} is cached, but not valid`);
    if (!isValid && !residency.isOwned(block)) fail(`block ${block} is not valid, but has no owner`);
    if (computing.has(block) && !residency.isOwned(block)) fail(`block ${block} is announced, but has no owner`);
    if (computing.has(block) && cached.has(block)) fail(`block ${block} is both announced and cached`);
  }
}

/** Scratch memory for the checks of one cache, made at the first check, because most caches are never checked. */
interface Scratch {
  readonly proposals: readonly GroupProposal[];
  readonly wanted: SpanList;
  /** By block: tables that have it, its block size, whether its owner has it. */
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

/** For checks of each block: the message is built only if the check fails. */
function fail(message: string): never {
  assert(false, message);
}
