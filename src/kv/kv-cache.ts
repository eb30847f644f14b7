import { assert } from '../base/assert.ts';
import type { BlockPlace, PlacedBlock } from '../core/block-place.ts';
import { type BlockId, NULL_BLOCK, type TokenCount } from '../core/ids.ts';
import type { InvalidBlocks } from '../core/invalid-blocks.ts';
import type { KvCacheSpec } from '../core/kv-spec.ts';
import type { BlockTable, Span } from '../core/step.ts';
import type { TokenBuffer } from '../core/tokens.ts';
import { HashChain, type HashFunction } from './block-hash.ts';
import { BlockPool } from './block-pool.ts';
import {
  allocateForTokens,
  pushFresh,
  releaseBlock,
  releaseReserved,
  releaseSkipped,
  restoreReserved,
} from './coverage.ts';
import { createGroup } from './create-group.ts';
import { blocksOn, invalidateBlocks, replanThoseAwaiting } from './invalidate.ts';
import type { KvParts } from './kv-parts.ts';
import { KvRequest } from './kv-request.ts';
import { isAwaitingLoad, loadArrived, loadFailed, loadLate, startLoads, uncomputedBlocks } from './loading.ts';
import { awaitedFrom, planRequest, replanRequest } from './plan-request.ts';
import { PrefixIndex } from './prefix-index.ts';
import { Proposal } from './proposal.ts';
import { Residency } from './residency.ts';
import { verifyKvCache, verifyPlans } from './verify.ts';

export interface KvCacheOptions {
  /** Without it nothing is looked up, shared or published. */
  readonly enablePrefixCaching: boolean;
  /** sha256. */
  readonly hash: HashFunction;
}

/**
 * The KV cache as the scheduler sees it: which pages a request holds, and what of its tokens is still to be computed.
 *
 *   open -> canAdmit/admit -> [ takeRows -> commitRows -> (tokenAppended) ]* -> release -> close
 *                     ^_________________ after preemption _______________________|
 *
 * Two requests with one prefix compute it once: whoever is admitted first owns the pages and fills them, the other
 * refers to them and awaits them; its rows may follow the owner's in the same step. When the owner leaves early,
 * another user of the page inherits it and goes on where the owner stopped.
 */
export class KvCache {
  readonly parts: KvParts;
  readonly #hash: HashFunction;
  readonly #freeSlots: number[] = [];
  readonly #proposal: Proposal;
  /** The request that the proposal is for; void as soon as any page changes hands. */
  #proposedFor: KvRequest | undefined;
  #admissions = 0;

  constructor(spec: KvCacheSpec, options: KvCacheOptions) {
    assert(spec.groups.length > 0, 'a KV cache without groups');
    const cached = new PrefixIndex(spec.blockCount);
    this.parts = {
      spec,
      enablePrefixCaching: options.enablePrefixCaching,
      groups: spec.groups.map(createGroup),
      pool: new BlockPool(spec.blockCount, cached),
      residency: new Residency(spec.blockCount),
      cached,
      computing: new PrefixIndex(spec.blockCount),
      requests: [],
    };
    this.#hash = options.hash;
    this.#proposal = new Proposal(this.parts);
  }

  /** The cache's side of a new request; holds no pages yet. Hashes its blocks: about half a microsecond each. */
  open(tokens: TokenBuffer, cacheSalt: string | undefined): KvRequest {
    const { spec, requests } = this.parts;
    const slot = this.#freeSlots.pop() ?? requests.length;
    const chains: HashChain[] = [];
    for (const { blockSize } of spec.groups) {
      const same = chains.find((chain) => chain.blockSize === blockSize);
      const root = { fingerprint: spec.fingerprint, cacheSalt };
      const capacity = this.parts.enablePrefixCaching ? Math.floor(tokens.capacity / blockSize) : 0;
      const chain = same ?? new HashChain(this.#hash, blockSize, root, capacity);
      // Now, and not when a step is planned: requests arrive while the step before computes.
      if (this.parts.enablePrefixCaching) chain.extend(tokens);
      chains.push(chain);
    }
    const request = new KvRequest(slot, tokens, chains);
    requests[slot] = request;
    return request;
  }

  /** Lets go of everything; the request must not be used again. */
  close(request: KvRequest): void {
    if (request.admitted) this.release(request);
    request.isOpen = false;
    this.parts.requests[request.slot] = undefined;
    this.#freeSlots.push(request.slot);
  }

  /**
   * Looks up what is there for a request without pages, and says whether the pages that it needs can be had, with
   * `headroom` pages left over for others. `found`: blocks that a connector could load. O(blocks of the request).
   */
  canAdmit(request: KvRequest, headroom: number, found: readonly BlockPlace[] = nothingFound): boolean {
    assert(!request.admitted, 'the request has pages already');
    const { pool } = this.parts;
    this.#proposedFor = request;
    if (this.#proposal.draw(request, true, found) + headroom <= pool.available) return true;
    // Alone, a request must get in: if what it could reuse takes too much room beside what it needs, it goes without.
    return headroom === 0 && this.#proposal.draw(request, false, nothingFound) <= pool.available;
  }

  /** Whether the request that `canAdmit` has just looked at would wait for a load, under way or of found blocks. O(blocks). */
  wouldAwaitLoad(request: KvRequest, isFoundLoadedBeside: boolean): boolean {
    assert(this.#proposedFor === request, 'ask `canAdmit` right before');
    return this.#proposal.countsOnLoads(isFoundLoadedBeside);
  }

  /** The full blocks that the pool lacks for a request without pages: what connectors are asked for. O(blocks). */
  wanted(request: KvRequest): BlockPlace[] {
    this.#proposedFor = undefined;
    return this.#proposal.lacking(request);
  }

  /**
   * Takes the pages that `canAdmit` has just found, and fresh ones for the rest; plans what is to be computed, counting on
   * the blocks that are to be loaded. Returns these: exactly those of the found ones that the plan relies on.
   */
  admit(request: KvRequest): PlacedBlock[] {
    assert(this.#proposedFor === request, 'ask `canAdmit` right before `admit`');
    this.#proposedFor = undefined;
    const { groups, pool } = this.parts;
    // First all that was found: allocating evicts, and must not evict what this very request is about to use.
    for (const { blocks, blockCount } of this.#proposal.groups)
      for (let index = 0; index < blockCount; index++)
        if (blocks[index] !== NULL_BLOCK) pool.reference(blocks[index] as BlockId);
    const loads: PlacedBlock[] = [];
    for (let group = 0; group < groups.length; group++) {
      const { blocks, blockCount, external } = this.#proposal.groups[group]!;
      const table = request.tables[group]!;
      for (let index = 0; index < blockCount; index++) {
        const isLoad = external[index] === 1;
        if (blocks[index] === NULL_BLOCK && (isLoad || groups[group]!.allocatesAll))
          pushFresh(this.parts, request, group);
        else table.push(blocks[index] as BlockId);
        if (!isLoad) continue;
        this.parts.residency.startLoading(table.at(index), 0);
        loads.push({ group, index, block: table.at(index) });
      }
    }
    request.admitted = true;
    request.admission = ++this.#admissions;
    planRequest(this.parts, this.#proposal.groups, request);
    return loads;
  }

  /** Whether one row is all that is missing before the next token can be sampled, and it waits for nobody. */
  isDecode(request: KvRequest): boolean {
    return request.needsOneToken() && awaitedFrom(this.parts, request) === Infinity;
  }

  /**
   * The next rows of the request for the step that is being planned, at most `budget` of them. None when it must wait
   * for another request's rows, or when no page is left for them (`request.isStarved`).
   */
  scheduleTokens(request: KvRequest, budget: number): readonly Span[] {
    this.#proposedFor = undefined;
    if (request.needsPlan) replanRequest(this.parts, this.#proposal.groups, request);
    request.hasMaskedWrites = false;
    request.isOutOfBlocks = false;
    const limit = awaitedFrom(this.parts, request);
    let taken: Span[] | undefined;
    let left = budget;
    while (request.nextSpan < request.spans.count && left > 0) {
      const spanEnd = request.spans.end(request.nextSpan);
      const start = Math.max(request.spans.start(request.nextSpan), request.nextToken);
      const wanted = Math.min(spanEnd, start + left, limit);
      if (wanted <= start) break;
      const end = allocateForTokens(this.parts, request, start, wanted);
      if (end > start) {
        const span = { start: start as TokenCount, end: end as TokenCount };
        // Made with its first element: an empty array that is pushed to makes room for sixteen more, once per token.
        if (taken === undefined) taken = [span];
        else taken.push(span);
        this.#markPlanned(request, start, end);
        request.nextToken = end;
        if (end === spanEnd) request.nextSpan++;
        left -= end - start;
      }
      if (end < wanted) {
        request.isOutOfBlocks = true;
        break;
      }
      // A table has one page per block: what waits aside for a later span comes back when this step is done.
      if (request.reserved.length > 0) break;
    }
    return taken ?? noSpans;
  }

  /**
   * The tables to write through when `rowsMasked`: NULL_BLOCK where a row's block is not this request's to write,
   * because it is valid already (the last token of a prompt that was found in full) or another's.
   */
  writeTables(request: KvRequest, spans: readonly Span[]): BlockTable[] {
    const { spec, residency } = this.parts;
    return request.tables.map((table, group) => {
      const { blockSize } = spec.groups[group]!;
      const ids = table.ids.slice(0, table.length);
      for (const { start, end } of spans)
        for (let index = Math.floor(start / blockSize); index * blockSize < end; index++)
          if (!residency.isFilledBy(table.at(index), request.slot)) ids[index] = NULL_BLOCK;
      return { ids, length: ids.length };
    });
  }

  /**
   * The rows were computed: their KV is valid, full blocks are published, what nobody can see any more is let go.
   * Rows from position `below` on do not count (see `InvalidBlocks.firstRow`): the request plans again.
   */
  commitTokens(request: KvRequest, spans: readonly Span[], below = Infinity): void {
    const { groups, spec } = this.parts;
    // From the last span, where the spoiled rows are: an earlier one may have rows in the same block.
    for (let i = spans.length - 1; i >= 0; i--) {
      const { start, end } = spans[i]!;
      for (let group = 0; group < groups.length; group++) {
        const { blockSize } = spec.groups[group]!;
        const last = Math.floor((end - 1) / blockSize);
        for (let index = Math.floor(start / blockSize); index <= last; index++)
          this.#commitBlock(request, group, index, end > below ? Math.max(start, below) : Infinity);
      }
    }
    if (below !== Infinity) {
      request.needsPlan = true;
      return;
    }
    if (request.reserved.length > 0 && request.isBetweenSpans()) restoreReserved(this.parts, request);
    releaseSkipped(this.parts, request, request.nextPosition());
  }

  /** Rows of the step do not count that were to fill some of these pages: see `invalidate.ts`. */
  replanThoseAwaiting(invalid: InvalidBlocks): void {
    replanThoseAwaiting(this.parts, invalid);
  }

  /** The content of these pages is not valid. Returns the requests that have one of them; they plan again. No step is out. */
  invalidate(blocks: readonly BlockId[]): KvRequest[] {
    this.#proposedFor = undefined;
    return invalidateBlocks(this.parts, blocks);
  }

  /** Where the request has a page of the set. */
  blocksOn(request: KvRequest, invalid: InvalidBlocks): BlockPlace[] {
    return blocksOn(this.parts, request, invalid);
  }

  /** Rows of this step may count on these loads, and are thrown away with those that fail. */
  loadInStep(loads: readonly PlacedBlock[]): void {
    for (const { group, block } of loads)
      this.parts.residency.startLoading(block, this.parts.spec.groups[group]!.blockSize);
  }

  /** Whether others, or transfers, are still to fill blocks of the request. */
  awaitsOthers(request: KvRequest): boolean {
    return awaitedFrom(this.parts, request) !== Infinity;
  }

  /** The full blocks of a request with pages that it is to compute from their first token on. No step is out. */
  uncomputed(request: KvRequest): BlockPlace[] {
    // Plans again first, if that is due: other pages may hold some of them.
    this.awaitsLoad(request);
    return uncomputedBlocks(this.parts, request);
  }

  /** See `loading.ts`. Returns what is to be loaded, and where to. */
  startLoads(request: KvRequest, places: readonly BlockPlace[]): PlacedBlock[] {
    this.#proposedFor = undefined;
    return startLoads(this.parts, request, places);
  }

  /** Whether the request waits for a load, its own or another's. */
  awaitsLoad(request: KvRequest): boolean {
    if (request.needsPlan) replanRequest(this.parts, this.#proposal.groups, request);
    return isAwaitingLoad(this.parts, request);
  }

  /** See `loading.ts`. No step is out. */
  loadArrived(index: PlacedBlock): boolean {
    this.#proposedFor = undefined;
    return loadArrived(this.parts, index);
  }

  loadLate(blocks: readonly BlockId[]): void {
    loadLate(this.parts, blocks);
  }

  loadFailed(block: BlockId, isBusy: boolean): KvRequest[] {
    this.#proposedFor = undefined;
    return loadFailed(this.parts, block, isBusy);
  }

  /** A token was appended behind a wholly computed request: it is the next row. */
  tokenAppended(request: KvRequest): void {
    assert(request.nextSpan === request.spans.count, 'a token was sampled before all others were computed');
    const end = request.tokens.length;
    request.spans.clear();
    request.spans.push(end - 1, end);
    request.nextSpan = 0;
    request.nextToken = end - 1;
  }

  /** Gives all pages back; what is published stays to be found, pages that others await pass to one of them. */
  release(request: KvRequest): void {
    assert(request.admitted, 'the request has no pages');
    this.#proposedFor = undefined;
    releaseReserved(this.parts, request);
    for (let group = 0; group < request.tables.length; group++) {
      const table = request.tables[group]!;
      // From the tail, so that of this request's blocks the prefix survives longest.
      for (let index = table.length - 1; index >= request.firstAllocated[group]!; index--) {
        const block = table.at(index);
        if (block !== NULL_BLOCK) releaseBlock(this.parts, request, { group, index, block });
      }
      table.clear();
    }
    request.reset();
  }

  /** No request is open, and no transfer holds a page: every page is free or cached (I7). O(1). */
  checkUnused(): void {
    const { pool, requests } = this.parts;
    assert(this.#freeSlots.length === requests.length, `${requests.length - this.#freeSlots.length} requests are open`);
    const used = pool.blockCount - 1 - pool.available;
    assert(used === 0, `I7: ${used} pages are in use, and no request or transfer has them`);
  }

  /** I4, I7 and ownership, by recounting everything; and I3, unless a step is out. O(pages + tables). */
  checkInvariants(isStepInFlight: boolean): void {
    verifyKvCache(this.parts);
    if (!isStepInFlight) verifyPlans(this.parts);
  }

  /** Rows [start, end) will be computed in this step: later rows may count on them. */
  #markPlanned(request: KvRequest, start: number, end: number): void {
    const { residency, spec } = this.parts;
    for (let group = 0; group < request.tables.length; group++) {
      const { blockSize, kind } = spec.groups[group]!;
      const table = request.tables[group]!;
      const last = Math.floor((end - 1) / blockSize);
      for (let index = Math.floor(start / blockSize); index <= last; index++) {
        const block = table.at(index);
        if (!residency.isFilledBy(block, request.slot)) {
          request.hasMaskedWrites = true;
          continue;
        }
        const to = Math.min(end - index * blockSize, blockSize);
        // A state is one number, the last one written; KV entries stay where they are.
        residency.scheduledTokens[block] = kind === 'state' ? to : Math.max(to, residency.scheduledTokens[block]!);
      }
    }
  }

  #commitBlock(request: KvRequest, group: number, index: number, below: number): void {
    const { residency, spec, computing, cached } = this.parts;
    const block = request.tables[group]!.at(index);
    if (!residency.isFilledBy(block, request.slot)) return;
    const { blockSize, kind } = spec.groups[group]!;
    const to = Math.max(below - index * blockSize, 0);
    if (kind === 'state') residency.commitState(block, to);
    else residency.commitBelow(block, to);
    if (residency.validTokens[block] !== blockSize) return;
    residency.clearOwner(block, request.slot);
    if (computing.has(block)) computing.remove(block);
    if (!this.parts.enablePrefixCaching) return;
    const chain = request.chains[group]!;
    chain.extend(request.tokens);
    cached.insert(block, group, chain.words, index);
    this.parts.onBlockCached?.(block, request, group, index);
  }
}

const nothingFound: readonly never[] = [];
const noSpans: readonly never[] = [];
