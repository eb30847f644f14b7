import { assert } from '../base/assert.ts';
import { type BlockId, NULL_BLOCK, type TokenCount } from '../core/ids.ts';
import type { KvCacheSpec } from '../core/kv-spec.ts';
import type { BlockTable, Span } from '../core/step.ts';
import type { TokenBuffer } from '../core/tokens.ts';
import { HashChain, type HashFunction } from './block-hash.ts';
import { BlockPool } from './block-pool.ts';
import { createGroup } from './create-group.ts';
import { GroupProposal, type KvGroup } from './group.ts';
import { KvRequest } from './kv-request.ts';
import { planSpans } from './planner.ts';
import { PrefixIndex } from './prefix-index.ts';
import { Residency } from './residency.ts';
import { verifyKvCache } from './verify.ts';

export interface KvCacheOptions {
  /** Without it nothing is looked up, shared or published. */
  readonly enablePrefixCaching: boolean;
  /** sha256. */
  readonly hash: HashFunction;
}

/**
 * The KV cache as the scheduler sees it: which pages a request holds, and what of its tokens is still to be computed.
 *
 *   open -> canAdmit/admit -> [ takeRows -> commitRows -> (token appended) -> canGrow/grow ]* -> release -> close
 *                     ^______________________ after preemption _______________________|
 *
 * Two requests with one prefix compute it once: whoever is admitted first owns the pages and fills them, the other
 * refers to them and awaits them; its rows may follow the owner's in the same step. When the owner leaves early,
 * another user of the page inherits it and goes on where the owner stopped.
 */
export class KvCache {
  readonly spec: KvCacheSpec;
  readonly pool: BlockPool;
  readonly residency: Residency;
  /** Pages whose content is confirmed (I4). */
  readonly published: PrefixIndex;
  /** Pages that their owner is filling, by the content they will have. */
  readonly computing: PrefixIndex;
  readonly #groups: readonly KvGroup[];
  readonly #options: KvCacheOptions;
  readonly #requests: (KvRequest | undefined)[] = [];
  readonly #freeSlots: number[] = [];
  readonly #proposals: readonly GroupProposal[];
  /** The request that the proposals are for; they are void as soon as any page changes hands. */
  #proposedFor: KvRequest | undefined;

  constructor(spec: KvCacheSpec, options: KvCacheOptions) {
    assert(spec.groups.length > 0, 'a KV cache without groups');
    this.spec = spec;
    this.#options = options;
    this.published = new PrefixIndex(spec.pageCount);
    this.computing = new PrefixIndex(spec.pageCount);
    this.pool = new BlockPool(spec.pageCount, this.published);
    this.residency = new Residency(spec.pageCount);
    this.#groups = spec.groups.map(createGroup);
    this.#proposals = spec.groups.map((group) => new GroupProposal(group));
  }

  /** The cache's side of a new request; holds no pages yet. */
  open(tokens: TokenBuffer, cacheSalt: string | undefined): KvRequest {
    const slot = this.#freeSlots.pop() ?? this.#requests.length;
    const chains: HashChain[] = [];
    for (const { blockSize } of this.spec.groups) {
      const same = chains.find((chain) => chain.blockSize === blockSize);
      chains.push(
        same ?? new HashChain(this.#options.hash, blockSize, { fingerprint: this.spec.fingerprint, cacheSalt }),
      );
    }
    const request = new KvRequest(slot, tokens, chains);
    this.#requests[slot] = request;
    return request;
  }

  /** Lets go of everything; the request must not be used again. */
  close(request: KvRequest): void {
    if (request.admitted) this.release(request);
    this.#requests[request.slot] = undefined;
    this.#freeSlots.push(request.slot);
  }

  /**
   * Looks up what is there for a request without pages, and says whether pages for all its tokens can be had, with
   * `headroom` pages left over for others. O(blocks of the request).
   */
  canAdmit(request: KvRequest, headroom: number): boolean {
    assert(!request.admitted, 'the request has pages already');
    let fresh = 0;
    let revived = 0;
    for (let g = 0; g < this.#groups.length; g++) {
      const proposal = this.#proposals[g]!;
      proposal.reset(Math.ceil(request.tokens.length / proposal.blockSize));
      if (this.#options.enablePrefixCaching) revived += this.#lookUp(request, g, proposal);
      fresh += this.#groups[g]!.freshPages(proposal);
    }
    this.#proposedFor = request;
    return fresh + revived + headroom <= this.pool.available;
  }

  /** Takes the pages that `canAdmit` has just found, and fresh ones for the rest; plans what is to be computed. */
  admit(request: KvRequest): void {
    assert(this.#proposedFor === request, 'ask `canAdmit` right before `admit`');
    this.#proposedFor = undefined;
    // First all that was found: allocating evicts, and must not evict what this very request is about to use.
    for (const { pages, blockCount } of this.#proposals)
      for (let block = 0; block < blockCount; block++)
        if (pages[block] !== NULL_BLOCK) this.pool.reference(pages[block] as BlockId);
    for (let g = 0; g < this.#groups.length; g++) {
      const { pages, blockCount } = this.#proposals[g]!;
      for (let block = 0; block < blockCount; block++) {
        if (pages[block] === NULL_BLOCK) this.#pushFresh(request, g, block);
        else request.tables[g]!.push(pages[block] as BlockId);
      }
    }
    request.admitted = true;
    this.#plan(request);
  }

  /** Whether pages for all tokens so far are there or can be had. */
  canGrow(request: KvRequest): boolean {
    let missing = 0;
    for (const group of this.#groups) missing += group.missingPages(request);
    return missing <= this.pool.available;
  }

  grow(request: KvRequest): void {
    for (let g = 0; g < this.#groups.length; g++)
      for (let missing = this.#groups[g]!.missingPages(request); missing > 0; missing--)
        this.#pushFresh(request, g, request.tables[g]!.length);
  }

  /**
   * The next rows of the request for the step that is being planned, at most `budget` of them; none when it must wait
   * for others first. Rows taken earlier for the same step count as computed.
   */
  takeRows(request: KvRequest, budget: number): Span[] {
    this.#proposedFor = undefined;
    if (request.needsPlan) this.#plan(request);
    request.rowsMasked = false;
    const limit = this.#awaitedFrom(request);
    const taken: Span[] = [];
    let left = budget;
    while (request.nextSpan < request.spans.count && left > 0) {
      const spanEnd = request.spans.end(request.nextSpan);
      const start = Math.max(request.spans.start(request.nextSpan), request.nextToken);
      const end = Math.min(spanEnd, start + left, limit);
      if (end <= start) break;
      taken.push({ start: start as TokenCount, end: end as TokenCount });
      this.#markPlanned(request, start, end);
      request.nextToken = end;
      if (end === spanEnd) request.nextSpan++;
      left -= end - start;
    }
    return taken;
  }

  /**
   * The tables to write through when `rowsMasked`: NULL_BLOCK where a row's block is not this request's to write,
   * because it is valid already (the last token of a prompt that was found in full) or another's.
   */
  writeTables(request: KvRequest, spans: readonly Span[]): BlockTable[] {
    return request.tables.map((table, g) => {
      const { blockSize } = this.spec.groups[g]!;
      const ids = table.ids.slice(0, table.length);
      for (const { start, end } of spans)
        for (let block = Math.floor(start / blockSize); block * blockSize < end; block++)
          if (!this.residency.isOwnedBy(table.at(block), request.slot)) ids[block] = NULL_BLOCK;
      return { ids, length: ids.length };
    });
  }

  /** The rows were computed: their KV is valid, full blocks are published. */
  commitRows(request: KvRequest, spans: readonly Span[]): void {
    for (let i = 0; i < spans.length; i++) {
      const { start, end } = spans[i]!;
      for (let g = 0; g < this.#groups.length; g++) {
        const { blockSize } = this.spec.groups[g]!;
        const last = Math.floor((end - 1) / blockSize);
        for (let block = Math.floor(start / blockSize); block <= last; block++) this.#commitBlock(request, g, block);
      }
    }
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
    for (let g = 0; g < this.#groups.length; g++) {
      const table = request.tables[g]!;
      for (let block = table.length - 1; block >= 0; block--) {
        const page = table.at(block);
        if (page === NULL_BLOCK) continue;
        if (this.residency.isOwnedBy(page, request.slot)) this.#leaveOwned(request, g, block, page);
        this.pool.release(page);
      }
      table.clear();
    }
    request.spans.clear();
    request.nextSpan = 0;
    request.nextToken = 0;
    request.awaited.length = 0;
    request.nextAwaited = 0;
    request.needsPlan = false;
    request.admitted = false;
  }

  /** The open requests, for checks. */
  openRequests(): KvRequest[] {
    return this.#requests.filter((request) => request !== undefined);
  }

  /** I4, I7 and ownership, by recounting everything. O(pages + tables). */
  checkInvariants(): void {
    verifyKvCache(this);
  }

  /** Fills the proposal with published pages and pages in the making; returns how many of them would leave the idle list. */
  #lookUp(request: KvRequest, g: number, proposal: GroupProposal): number {
    const chain = request.chains[g]!;
    chain.extend(request.tokens);
    let revived = 0;
    for (let block = 0; block < chain.count; block++) {
      let page = this.published.find(g, chain.words, block);
      if (page !== NULL_BLOCK) revived += this.pool.isAvailable(page) ? 1 : 0;
      else page = this.computing.find(g, chain.words, block);
      if (page !== NULL_BLOCK) proposal.set(block, page, 0, proposal.blockSize);
    }
    return revived;
  }

  #pushFresh(request: KvRequest, g: number, block: number): void {
    const page = this.pool.allocate();
    this.residency.begin(page, request.slot);
    request.tables[g]!.push(page);
    const chain = request.chains[g]!;
    if (this.#options.enablePrefixCaching && block < chain.count) this.computing.insert(page, g, chain.words, block);
  }

  /** Asks the planner: what is this request to compute, if everything that others compute for it arrives? */
  #plan(request: KvRequest): void {
    request.awaited.length = 0;
    for (let g = 0; g < this.#groups.length; g++) {
      const proposal = this.#proposals[g]!;
      const table = request.tables[g]!;
      proposal.reset(table.length);
      for (let block = 0; block < table.length; block++) {
        const page = table.at(block);
        if (page === NULL_BLOCK) continue;
        const mine = this.residency.isOwnedBy(page, request.slot);
        if (mine) proposal.set(block, page, this.residency.validFrom[page]!, this.residency.validTo[page]!);
        else {
          proposal.set(block, page, 0, proposal.blockSize);
          if (this.residency.isOwned(page)) {
            const { blockSize } = proposal;
            request.awaited.push({ page, start: block * blockSize, blockSize });
          }
        }
      }
    }
    if (this.#groups.length > 1) request.awaited.sort((a, b) => a.start - b.start);
    request.nextAwaited = 0;
    planSpans(request.tokens.length, this.#proposals, request.spans);
    request.nextSpan = 0;
    request.nextToken = 0;
    request.needsPlan = false;
  }

  /** The position that waits for another request's rows: none of this request's rows from there on can be computed yet. */
  #awaitedFrom(request: KvRequest): number {
    for (; request.nextAwaited < request.awaited.length; request.nextAwaited++) {
      const { page, start, blockSize } = request.awaited[request.nextAwaited]!;
      if (this.residency.isOwned(page) && this.residency.plannedTo[page] !== blockSize) return start;
    }
    return Infinity;
  }

  /** Rows [start, end) will be computed in this step: later rows may count on them. */
  #markPlanned(request: KvRequest, start: number, end: number): void {
    const { plannedTo, validFrom } = this.residency;
    for (let g = 0; g < this.#groups.length; g++) {
      const { blockSize } = this.spec.groups[g]!;
      const table = request.tables[g]!;
      const last = Math.floor((end - 1) / blockSize);
      for (let block = Math.floor(start / blockSize); block <= last; block++) {
        const page = table.at(block);
        if (!this.residency.isOwnedBy(page, request.slot)) {
          request.rowsMasked = true;
          continue;
        }
        const first = Math.max(start - block * blockSize, 0);
        if (plannedTo[page] === 0) validFrom[page] = first;
        assert(first <= plannedTo[page]! || plannedTo[page] === 0, `page ${page}: rows would leave a gap`);
        plannedTo[page] = Math.min(end - block * blockSize, blockSize);
      }
    }
  }

  #commitBlock(request: KvRequest, g: number, block: number): void {
    const page = request.tables[g]!.at(block);
    if (!this.residency.isOwnedBy(page, request.slot)) return;
    const { validFrom, validTo, plannedTo } = this.residency;
    validTo[page] = plannedTo[page]!;
    if (validTo[page] !== this.spec.groups[g]!.blockSize || validFrom[page] !== 0) return;
    this.residency.disown(page, request.slot);
    if (this.computing.has(page)) this.computing.remove(page);
    if (!this.#options.enablePrefixCaching) return;
    const chain = request.chains[g]!;
    chain.extend(request.tokens);
    this.published.insert(page, g, chain.words, block);
  }

  /** A page that its owner has not filled: somebody who awaits it goes on with it; if nobody does, its content is lost. */
  #leaveOwned(request: KvRequest, g: number, block: number, page: BlockId): void {
    if (this.pool.references(page) > 1) {
      const heir = this.#requests.find(
        (other) =>
          other !== undefined &&
          other !== request &&
          block < other.tables[g]!.length &&
          other.tables[g]!.at(block) === page,
      );
      assert(heir !== undefined, `page ${page} is shared, but nobody has it at block ${block}`);
      this.residency.bequeath(page, request.slot, heir.slot);
      heir.needsPlan = true;
      return;
    }
    this.residency.disown(page, request.slot);
    if (this.computing.has(page)) this.computing.remove(page);
  }
}
