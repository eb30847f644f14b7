import { type BlockId, NULL_BLOCK } from '../core/ids.ts';
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
   * Looks up the request's blocks (only when `useCache`), keeps what its plan relies on, and returns the pages that
   * admitting it would take from those that are available now. O(blocks).
   */
  draw(request: KvRequest, useCache: boolean): number {
    const { groups, enablePrefixCaching } = this.#parts;
    for (let g = 0; g < groups.length; g++) {
      const proposal = this.groups[g]!;
      proposal.reset(Math.ceil(request.tokens.length / proposal.blockSize));
      if (useCache && enablePrefixCaching) this.#lookUp(request, g, proposal);
    }
    if (this.#isSelective) {
      planSpans(request.tokens.length, this.groups, this.#spans);
      for (let g = 0; g < groups.length; g++) groups[g]!.strike(this.groups[g]!, this.#spans);
    }
    let pages = 0;
    for (let g = 0; g < groups.length; g++) {
      pages += groups[g]!.freshPages(this.groups[g]!);
      pages += this.#revivedPages(this.groups[g]!);
    }
    return pages;
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
