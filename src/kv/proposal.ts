import type { BlockPlace } from '../core/block-place.ts';
import { type BlockId, NULL_BLOCK } from '../core/ids.ts';
import { chooseLoads, loadsOf } from './choose-loads.ts';
import { GroupProposal } from './group.ts';
import type { KvParts } from './kv-parts.ts';
import type { KvRequest } from './kv-request.ts';
import { planSpans } from './planner.ts';
import { SpanList } from './span-list.ts';

/** What a request without pages would get if it were admitted now. Scratch memory: one proposal at a time. */
export class Proposal {
  readonly groups: readonly GroupProposal[];
  readonly #parts: KvParts;
  readonly #spans = new SpanList();
  readonly #isSelective: boolean;

  constructor(parts: KvParts) {
    this.#parts = parts;
    this.groups = parts.spec.groups.map((group) => new GroupProposal(group));
    this.#isSelective = parts.groups.some((group) => !group.takesAllAtOnce);
  }

  /**
   * Looks up the request's blocks (only when `useCache`), counts on those that are `found` outside, keeps of all of them
   * what its plan relies on, and returns the pages that admitting it would take from those that are available now.
   * O(blocks).
   */
  draw(request: KvRequest, useCache: boolean, found: readonly BlockPlace[]): number {
    const { groups, enablePrefixCaching } = this.#parts;
    for (let g = 0; g < groups.length; g++) {
      const proposal = this.groups[g]!;
      proposal.reset(Math.ceil(request.tokens.length / proposal.blockSize));
      if (useCache && enablePrefixCaching) this.#lookUp(request, g, proposal);
    }
    for (let i = 0; i < found.length; i++) this.groups[found[i]!.group]!.setOutside(found[i]!.index);
    if (this.#isSelective || found.length > 0) {
      planSpans(request.tokens.length, this.groups, this.#spans);
      if (found.length > 0) for (const group of this.groups) chooseLoads(group, this.#spans);
      for (let g = 0; g < groups.length; g++) groups[g]!.strike(this.groups[g]!, this.#spans);
    }
    let pages = 0;
    for (let g = 0; g < groups.length; g++) {
      pages += groups[g]!.freshPages(this.groups[g]!);
      // A full group has counted them; the others count what their rows need as they go.
      if (!groups[g]!.takesAllAtOnce) pages += loadsOf(this.groups[g]!);
      pages += this.#revivedPages(this.groups[g]!);
    }
    return pages;
  }

  /** Whether it counts on a load: on one that is under way, or (`includesFound`) on blocks that were found outside. */
  countsOnLoads(includesFound: boolean): boolean {
    const { residency } = this.#parts;
    for (const { pages, outside, blockCount, blockSize } of this.groups)
      for (let block = 0; block < blockCount; block++) {
        const page = pages[block] as BlockId;
        // What is loaded within the step is not waited for.
        if (residency.isLoading(page) && residency.plannedTo[page] !== blockSize) return true;
        if (includesFound && outside[block] === 1) return true;
      }
    return false;
  }

  /** The full blocks of the request that no page has or will have. */
  lacking(request: KvRequest): BlockPlace[] {
    const places: BlockPlace[] = [];
    for (let group = 0; group < this.groups.length; group++) {
      const proposal = this.groups[group]!;
      proposal.reset(Math.ceil(request.tokens.length / proposal.blockSize));
      this.#lookUp(request, group, proposal);
      for (let block = 0; block < request.chains[group]!.count; block++)
        if (proposal.pages[block] === NULL_BLOCK) places.push({ group, index: block });
    }
    return places;
  }

  /** Published pages first; else pages that another request has promised to fill. */
  #lookUp(request: KvRequest, g: number, proposal: GroupProposal): void {
    const { published, computing } = this.#parts;
    const chain = request.chains[g]!;
    chain.extend(request.tokens);
    for (let block = 0; block < chain.count; block++) {
      let page = published.find(g, chain.words, block);
      if (page === NULL_BLOCK) page = computing.find(g, chain.words, block);
      if (page !== NULL_BLOCK) proposal.set(block, page, proposal.blockSize);
    }
  }

  /** Found pages that nobody refers to are counted as available until this request takes them. */
  #revivedPages({ pages, blockCount }: GroupProposal): number {
    let revived = 0;
    for (let block = 0; block < blockCount; block++)
      if (pages[block] !== NULL_BLOCK && this.#parts.pool.isAvailable(pages[block] as BlockId)) revived++;
    return revived;
  }
}
