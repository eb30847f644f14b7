import { assert } from '../base/assert.ts';
import type { BlockPlace, PlacedBlock } from '../core/block-place.ts';
import {
  type BlockId,
  type BlockIndex,
  blockIndex,
  blockIndexOf,
  type GroupIndex,
  groupIndex,
  NULL_BLOCK,
} from '../core/ids.ts';
import type { InvalidBlocks } from '../core/invalid-blocks.ts';
import type { KvCacheSpec } from '../core/kv-spec.ts';
import type { AdapterRef } from '../core/request.ts';
import type { BlockTable, Span } from '../core/step.ts';
import type { TokenBuffer } from '../core/tokens.ts';
import { HashChain, type HashFunction } from './block-hash.ts';
import { BlockPool } from './block-pool.ts';
import { CacheEventLog } from './cache-events.ts';
import { allocateForTokens, pushNewBlock } from './coverage.ts';
import { createGroup } from './create-group.ts';
import { allocateForDrafts, canDraft, keepDrafts } from './drafts.ts';
import { invalidateBlocks, invalidPlaces, replanRequestsAwaiting } from './invalidate.ts';
import type { KvParts } from './kv-parts.ts';
import { KvRequest } from './kv-request.ts';
import { isAwaitingLoad, loadArrived, loadFailed, loadLate } from './loading.ts';
import { PinnedPrefixes } from './pinned-prefixes.ts';
import { awaitedFrom, planRequest, replanRequest } from './plan-request.ts';
import { PrefixIndex } from './prefix-index.ts';
import { Proposal } from './proposal.ts';
import { releaseAll, releaseKept, releaseSkipped, restoreReserved } from './release.ts';
import { resetPrefixCache } from './reset.ts';
import { Residency } from './residency.ts';
import { startLoads, uncomputedBlocks } from './start-loads.ts';
import { verifyKvCache, verifyPlans } from './verify.ts';
import { WantedContent } from './wanted-content.ts';

export interface KvCacheOptions {
  /** If false, blocks are neither looked up nor shared nor cached. */
  readonly enablePrefixCaching: boolean;
  readonly hash: HashFunction;
  /** The part of the blocks that pinned prefixes may have. Default: none. */
  readonly pinShare?: number | undefined;
}

/**
 * The KV cache as the scheduler sees it: the blocks of each request, and the tokens that it must still compute.
 *
 *   open -> canAdmit/admit -> [ scheduleTokens -> commitTokens -> (tokenAppended) ]* -> release -> close
 *                     ^_____________________ after preemption __________________________|
 *
 * Two requests with a shared prefix compute it once. The request that is admitted first owns the blocks and fills them.
 * The other request references the blocks and waits; its tokens may follow the owner's tokens in the same step. If the
 * owner ends or is preempted, another request with the block becomes the owner and continues where it stopped.
 */
export class KvCache {
  readonly parts: KvParts;
  readonly #hash: HashFunction;
  readonly #freeSlots: number[] = [];
  readonly #proposal: Proposal;
  /** The request of the proposal; undefined as soon as any block is allocated, referenced or released. */
  #proposedFor: KvRequest | undefined;
  /** Available blocks that its admission would take. */
  #proposedBlocks = 0;
  #admissions = 0;
  /** Requests that have blocks. */
  #admitted = 0;

  constructor(spec: KvCacheSpec, options: KvCacheOptions) {
    assert(spec.groups.length > 0, 'a KV cache needs a group');
    const cached = new PrefixIndex(spec.blockCount);
    const pool = new BlockPool(spec.blockCount, cached);
    this.parts = {
      spec,
      enablePrefixCaching: options.enablePrefixCaching,
      groups: spec.groups.map(createGroup),
      pool,
      residency: new Residency(spec.blockCount),
      cached,
      computing: new PrefixIndex(spec.blockCount),
      pins: new PinnedPrefixes(pool, cached, Math.floor((options.pinShare ?? 0) * (spec.blockCount - 1))),
      wanted: new WantedContent(pool, cached, options.enablePrefixCaching),
      requests: [],
    };
    this.#hash = options.hash;
    this.#proposal = new Proposal(this.parts);
  }

  /**
   * The cache's part of a new request, without blocks. Hashes the full blocks of the tokens: about half a microsecond
   * each.
   */
  open(tokens: TokenBuffer, cacheSalt: string | undefined, adapter?: AdapterRef): KvRequest {
    const { spec, requests } = this.parts;
    const slot = this.#freeSlots.pop() ?? requests.length;
    const chains: HashChain[] = [];
    for (const { blockSize } of spec.groups) {
      const same = chains.find((chain) => chain.blockSize === blockSize);
      const root = { fingerprint: spec.fingerprint, cacheSalt, adapter: adapter?.digest };
      const capacity = this.parts.enablePrefixCaching ? Math.floor(tokens.capacity / blockSize) : 0;
      const chain = same ?? new HashChain(this.#hash, blockSize, root, capacity);
      chains.push(chain);
    }
    const request = new KvRequest(slot, tokens, chains, { cacheSalt, adapterName: adapter?.name });
    requests[slot] = request;
    // Hashes here and not in `plan`, because requests arrive while a step is in flight.
    this.parts.wanted.add(request);
    return request;
  }

  /** Releases all blocks. The request must not be used again. */
  close(request: KvRequest): void {
    if (request.admitted) this.#releaseAll(request);
    else this.parts.wanted.remove(request);
    request.isOpen = false;
    this.parts.requests[request.slot] = undefined;
    this.#freeSlots.push(request.slot);
  }

  /**
   * Looks up the blocks of a request that has none. Returns whether the pool can allocate the missing ones and still has `headroom`
   * available blocks. A request needs no headroom if no other request has blocks, and must be admitted then. `found`: blocks that a
   * connector promised. If the pool has too few blocks for all hits, those before the first computed token count. O(blocks).
   */
  canAdmit(request: KvRequest, headroom: number, found: readonly BlockPlace[] = nothingFound): boolean {
    assert(!request.admitted, 'the request has blocks already');
    this.#proposedFor = request;
    this.#proposedBlocks = this.#proposal.build(request, found);
    if (this.leaves(request, headroom)) return true;
    if (!this.#proposal.isSelective) return false;
    this.#proposedBlocks = this.#proposal.keepPrefix(request);
    return this.leaves(request, headroom);
  }

  /** Called right after `canAdmit`: whether the admission leaves `headroom` available blocks, too. */
  leaves(request: KvRequest, headroom: number): boolean {
    assert(this.#proposedFor === request, 'call `canAdmit` right before `leaves`');
    return this.#proposedBlocks + (this.#admitted === 0 ? 0 : headroom) <= this.parts.pool.available;
  }

  /**
   * Called right after `canAdmit`. Whether the request would wait for a load: for a load in progress, or
   * (`isFoundLoadedAsync`) for an async load of the found blocks. O(blocks).
   */
  wouldAwaitLoad(request: KvRequest, isFoundLoadedAsync: boolean): boolean {
    assert(this.#proposedFor === request, 'call `canAdmit` right before `wouldAwaitLoad`');
    return this.#proposal.countsOnLoads(isFoundLoadedAsync);
  }

  /** The full blocks, of a request that has none, that the pool lacks. The connector is asked for them. O(blocks). */
  wanted(request: KvRequest): BlockPlace[] {
    this.#proposedFor = undefined;
    return this.#proposal.lacking(request);
  }

  /**
   * The tokens that a request without blocks would compute, and the blocks that it would load, if it were admitted now
   * and a connector had `found` these blocks. Changes nothing. O(blocks).
   */
  preview(request: KvRequest, found: readonly BlockPlace[]): { spans: Span[]; loads: BlockPlace[] } {
    this.#proposedFor = undefined;
    this.#proposal.build(request, found);
    return this.#proposal.preview(request);
  }

  /**
   * Called right after `canAdmit`. References the blocks that it found, allocates the others, and plans the tokens to
   * be computed. Returns the blocks to be loaded: those of the found blocks that the plan needs.
   */
  admit(request: KvRequest): PlacedBlock[] {
    assert(this.#proposedFor === request, 'call `canAdmit` right before `admit`');
    this.#proposedFor = undefined;
    const { groups, pool } = this.parts;
    // References come first, because an allocation could evict cached blocks that this request needs.
    for (const { blocks, indexCount } of this.#proposal.groups)
      for (let index = blockIndex(0); index < indexCount; index++)
        if (blocks[index] !== NULL_BLOCK) pool.reference(blocks[index] as BlockId);
    const loads: PlacedBlock[] = [];
    for (let group = groupIndex(0); group < groups.length; group++) {
      const { blocks, indexCount, external } = this.#proposal.groups[group]!;
      const table = request.tables[group]!;
      for (let index = blockIndex(0); index < indexCount; index++) {
        const isLoad = external[index] === 1;
        if (blocks[index] === NULL_BLOCK && (isLoad || groups[group]!.allocatesAll))
          pushNewBlock(this.parts, request, group);
        else table.push(blocks[index] as BlockId);
        this.parts.pins.used(table.at(index));
        if (!isLoad) continue;
        this.parts.residency.startLoading(table.at(index), 0);
        loads.push({ group, index, block: table.at(index) });
      }
    }
    request.admitted = true;
    this.parts.wanted.remove(request);
    this.#admitted++;
    request.admission = ++this.#admissions;
    planRequest(this.parts, this.#proposal.groups, request);
    return loads;
  }

  /** See `KvRequest.computeFrom`. It never decreases once the request has blocks, because results are not asked for twice. */
  computeFrom(request: KvRequest, position: number): void {
    assert(!request.admitted || position >= request.computeFrom, 'a position is asked for again');
    request.computeFrom = position;
  }

  /** Whether the request needs one more token before it can sample, and waits for no other request or load. */
  isDecode(request: KvRequest): boolean {
    return request.needsOneToken() && awaitedFrom(this.parts, request) === Infinity;
  }

  /**
   * Schedules the next tokens of the request in the step that is being planned, at most `budget`. Returns no spans if
   * the request waits for another request or a load, or if the pool has no block (`request.isOutOfBlocks`). The next
   * call for the request writes the same array.
   */
  scheduleTokens(request: KvRequest, budget: number): readonly Span[] {
    this.#proposedFor = undefined;
    // While it waited, others may have cached windows and states, or computed for results of their own what it would compute now.
    const hasWaited = request.awaited.length > 0 && (this.#proposal.isSelective || this.canBegin(request));
    if (request.needsPlan || hasWaited) replanRequest(this.parts, this.#proposal.groups, request);
    request.hasMaskedWrites = false;
    request.isOutOfBlocks = false;
    const limit = awaitedFrom(this.parts, request);
    const { spans, scheduled } = request;
    scheduled.begin();
    let left = budget;
    while (request.nextSpan < spans.count && left > 0) {
      const spanEnd = spans.end(request.nextSpan);
      const start = Math.max(spans.start(request.nextSpan), request.nextToken);
      const wanted = Math.min(spanEnd, start + left, limit);
      if (wanted <= start) break;
      const end = allocateForTokens(this.parts, request, start, wanted);
      if (end > start) {
        scheduled.push(start, end);
        this.#markScheduled(request, start, end);
        request.nextToken = end;
        if (end === spanEnd) request.nextSpan++;
        left -= end - start;
      }
      if (end < wanted) {
        request.isOutOfBlocks = true;
        break;
      }
      // A table has one block per index. The reserved blocks of later spans return to it when this span is computed.
      if (request.reserved.length > 0) break;
    }
    return scheduled.finish();
  }

  /**
   * The tables through which KV is written if `hasMaskedWrites`. They have NULL_BLOCK where the request must not write.
   * There, the block is valid already (the last token of a fully cached prompt), or another request owns it.
   */
  writeTables(request: KvRequest, spans: readonly Span[]): BlockTable[] {
    const { spec, residency } = this.parts;
    return request.tables.map((table, group) => {
      const { blockSize } = spec.groups[group]!;
      const ids = table.ids.slice(0, table.length);
      for (const { start, end } of spans)
        for (let index = blockIndexOf(start, blockSize); index * blockSize < end; index++)
          if (!residency.isFilledBy(table.at(index), request.slot)) ids[index] = NULL_BLOCK;
      return { ids, length: ids.length };
    });
  }

  /**
   * The scheduled tokens were computed: their KV is valid, full blocks are cached, and blocks that no later token reads
   * are released. Tokens from position `below` on do not count (see `InvalidBlocks`), and then the request plans again.
   */
  commitTokens(request: KvRequest, spans: readonly Span[], below = Infinity): void {
    const { groups, spec } = this.parts;
    // From the last span to the first, because only the last tokens may not count, and spans may share a block.
    for (let i = spans.length - 1; i >= 0; i--) {
      const { start, end } = spans[i]!;
      for (let group = groupIndex(0); group < groups.length; group++) {
        const { blockSize } = spec.groups[group]!;
        const last = blockIndexOf(end - 1, blockSize);
        for (let index = blockIndexOf(start, blockSize); index <= last; index++)
          this.#commitBlock(request, group, index, end > below ? Math.max(start, below) : Infinity);
      }
    }
    if (below !== Infinity) {
      request.needsPlan = true;
      return;
    }
    if (request.kept.length > 0) releaseKept(this.parts, request);
    if (request.reserved.length > 0 && request.isBetweenSpans()) restoreReserved(this.parts, request);
    releaseSkipped(this.parts, request, request.nextPosition(), spans.at(-1)!.end);
  }

  /** See `drafts.ts`. Allocates blocks for drafts after the tokens scheduled in this step. Returns for how many. */
  scheduleDrafts(request: KvRequest, count: number): number {
    this.#proposedFor = undefined;
    return canDraft(this.parts, request) ? allocateForDrafts(this.parts, request, count) : 0;
  }

  /**
   * See `drafts.ts`. Called once for each request with drafts, after `commitTokens` or `dropTokens`: the drafts at positions
   * [from, end) are tokens of the request now, and the others are rejected.
   */
  keepDrafts(request: KvRequest, from: number, end: number): void {
    this.#proposedFor = undefined;
    keepDrafts(this.parts, request, { from, end, onFull: (group, index) => this.#cacheIfFull(request, group, index) });
  }

  /** No rank has computed the scheduled tokens: the blocks are as before the step, and the request plans again. */
  dropTokens(request: KvRequest, spans: readonly Span[]): void {
    const { groups, spec, residency } = this.parts;
    for (const { start, end } of spans)
      for (let group = groupIndex(0); group < groups.length; group++) {
        const { blockSize } = spec.groups[group]!;
        const last = blockIndexOf(end - 1, blockSize);
        for (let index = blockIndexOf(start, blockSize); index <= last; index++) {
          const block = request.tables[group]!.at(index);
          if (residency.isFilledBy(block, request.slot)) residency.notComputed(block);
        }
      }
    request.needsPlan = true;
  }

  /** See `invalidate.ts`. */
  replanRequestsAwaiting(invalid: InvalidBlocks): void {
    replanRequestsAwaiting(this.parts, invalid);
  }

  /**
   * The KV of these blocks is invalid. Returns the requests that have one of them; they plan again. No step is in
   * flight.
   */
  invalidate(blocks: readonly BlockId[]): KvRequest[] {
    this.#proposedFor = undefined;
    return invalidateBlocks(this.parts, blocks);
  }

  /** See `invalidate.ts`. */
  invalidPlaces(request: KvRequest, invalid: InvalidBlocks): BlockPlace[] {
    return invalidPlaces(this.parts, request, invalid);
  }

  /**
   * Sync loads: tokens of this step may read these blocks. If a load fails, the tokens that depend on it do not count.
   */
  loadInStep(loads: readonly PlacedBlock[]): void {
    for (const { group, block } of loads)
      this.parts.residency.startLoading(block, this.parts.spec.groups[group]!.blockSize);
  }

  /** Whether some of its tokens can be computed before the blocks arrive for which it waits. */
  canBegin(request: KvRequest): boolean {
    return awaitedFrom(this.parts, request) > request.nextPosition();
  }

  /** Whether the request waits for blocks that other requests compute or transfers load. */
  awaitsOthers(request: KvRequest): boolean {
    return awaitedFrom(this.parts, request) !== Infinity;
  }

  /** See `start-loads.ts`. No step is in flight. */
  uncomputed(request: KvRequest): BlockPlace[] {
    // Plans again first if necessary: the pool may have other blocks with the same content.
    this.awaitsLoad(request);
    return uncomputedBlocks(this.parts, request);
  }

  /** See `start-loads.ts`. Returns the blocks to be loaded. */
  startLoads(request: KvRequest, found: readonly BlockPlace[]): PlacedBlock[] {
    this.#proposedFor = undefined;
    return startLoads(this.parts, this.#proposal.groups, request, found);
  }

  /** Whether the request waits for a load, of its own or of another request. */
  awaitsLoad(request: KvRequest): boolean {
    if (request.needsPlan) replanRequest(this.parts, this.#proposal.groups, request);
    return isAwaitingLoad(this.parts, request);
  }

  /** See `loading.ts`. No step is in flight. */
  loadArrived(placed: PlacedBlock): boolean {
    this.#proposedFor = undefined;
    return loadArrived(this.parts, placed);
  }

  loadLate(blocks: readonly BlockId[]): void {
    loadLate(this.parts, blocks);
  }

  loadFailed(block: BlockId, isBusy: boolean): KvRequest[] {
    this.#proposedFor = undefined;
    return loadFailed(this.parts, block, isBusy);
  }

  /** A token was appended to a request whose tokens are all computed. It is the next token to be computed. */
  tokenAppended(request: KvRequest): void {
    assert(request.nextSpan === request.spans.count, 'a token was sampled before all earlier tokens were computed');
    const end = request.tokens.length;
    request.spans.clear();
    request.spans.push(end - 1, end);
    request.nextSpan = 0;
    request.nextToken = end - 1;
  }

  /** Releases all blocks: it waits again. Cached blocks stay cached; others that wait for a block become its owner. */
  release(request: KvRequest): void {
    this.#releaseAll(request);
    this.parts.wanted.add(request);
  }

  /** See `cache-events.ts`. Called once, before the first request. */
  recordEvents(): CacheEventLog {
    const { cached, spec } = this.parts;
    assert(cached.size === 0, 'the cache has blocks already');
    this.parts.events = new CacheEventLog(
      cached,
      spec.groups.map(({ blockSize }) => blockSize),
    );
    return this.parts.events;
  }

  /** See `reset.ts`. Also while a step is in flight. */
  resetPrefixCache(isAll: boolean): number {
    this.#proposedFor = undefined;
    return resetPrefixCache(this.parts, isAll);
  }

  /** Called when no request is open and no transfer has pins: every block must be free or cached (I7). O(1). */
  checkUnused(): void {
    const { pool, requests } = this.parts;
    assert(this.#freeSlots.length === requests.length, `${requests.length - this.#freeSlots.length} requests are open`);
    assert(this.#admitted === 0, `no request is open, but ${this.#admitted} have blocks`);
    const used = pool.blockCount - 1 - pool.available;
    assert(used === 0, `I7: ${used} blocks are in use, but no request or transfer has them`);
  }

  /** Checks I4, I7 and ownership by recounting, and I3 unless a step is in flight. O(blocks + tables). */
  checkInvariants(isStepInFlight: boolean): void {
    verifyKvCache(this.parts);
    if (!isStepInFlight) verifyPlans(this.parts);
  }

  #releaseAll(request: KvRequest): void {
    assert(request.admitted, 'the request has no blocks');
    this.#proposedFor = undefined;
    releaseAll(this.parts, request);
    this.#admitted--;
  }

  /** Tokens [start, end) are computed in this step, so later tokens of the step may read their KV. */
  #markScheduled(request: KvRequest, start: number, end: number): void {
    const { residency, spec } = this.parts;
    for (let group = groupIndex(0); group < request.tables.length; group++) {
      const { blockSize, kind } = spec.groups[group]!;
      const table = request.tables[group]!;
      const last = blockIndexOf(end - 1, blockSize);
      for (let index = blockIndexOf(start, blockSize); index <= last; index++) {
        const block = table.at(index);
        if (!residency.isFilledBy(block, request.slot)) {
          request.hasMaskedWrites = true;
          continue;
        }
        const to = Math.min(end - index * blockSize, blockSize);
        // A state block keeps only the last state that was written; other blocks keep the KV of each token.
        residency.scheduledTokens[block] = kind === 'state' ? to : Math.max(to, residency.scheduledTokens[block]!);
      }
    }
  }

  #commitBlock(request: KvRequest, group: GroupIndex, index: BlockIndex, below: number): void {
    const { residency, spec } = this.parts;
    const block = request.tables[group]!.at(index);
    if (!residency.isFilledBy(block, request.slot)) return;
    const { blockSize, kind } = spec.groups[group]!;
    const to = Math.max(below - index * blockSize, 0);
    if (kind === 'state') residency.commitState(block, to);
    else residency.commitBelow(block, to);
    this.#cacheIfFull(request, group, index);
  }

  /** A full block has no owner any more, and other requests can find it. */
  #cacheIfFull(request: KvRequest, group: GroupIndex, index: BlockIndex): void {
    const { residency, spec, computing, cached } = this.parts;
    const block = request.tables[group]!.at(index);
    if (residency.validTokens[block] !== spec.groups[group]!.blockSize) return;
    residency.clearOwner(block, request.slot);
    if (computing.has(block)) computing.remove(block);
    if (!this.parts.enablePrefixCaching) return;
    const chain = request.chains[group]!;
    chain.extend(request.tokens);
    cached.insert(block, group, chain.words, index);
    this.parts.events?.stored(block, request, group, index);
    this.parts.onBlockCached?.(block, request, group, index);
  }
}

const nothingFound: readonly never[] = [];
