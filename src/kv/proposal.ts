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
    this.#isSelective = parts.groups.some((group) => !group.allocatesAll);
  }

  /**
   * Looks up the request's blocks (only when `useCache`), counts on those that are `found` outside, keeps of all of them
   * what its plan relies on, and returns the pages that admitting it would take from those that are available now.
   * O(blocks).
   */
  draw(request: KvRequest, useCache: boolean, found: readonly BlockPlace[]): number {
    const { groups, enablePrefixCaching } = this.#parts;
    for (let group = 0; group < groups.length; group++) {
      const proposal = this.groups[group]!;
      proposal.reset(Math.ceil(request.tokens.length / proposal.blockSize));
      if (useCache && enablePrefixCaching) this.#lookUp(request, group, proposal);
    }
    for (let i = 0; i < found.length; i++) this.groups[found[i]!.group]!.setExternal(found[i]!.index);
    if (this.#isSelective || found.length > 0) {
      planSpans(request.tokens.length, this.groups, this.#spans);
      if (found.length > 0) for (const group of this.groups) chooseLoads(group, this.#spans);
      for (let group = 0; group < groups.length; group++) groups[group]!.dropUnneeded(this.groups[group]!, this.#spans);
    }
    let blocks = 0;
    for (let group = 0; group < groups.length; group++) {
      blocks += groups[group]!.newBlockCount(this.groups[group]!);
      // A full group has counted them; the others count what their rows need as they go.
      if (!groups[group]!.allocatesAll) blocks += loadsOf(this.groups[group]!);
      blocks += this.#reusedIdleCount(this.groups[group]!);
    }
    return blocks;
  }

  /** Whether it counts on a load: on one that is under way, or (`includesFound`) on blocks that were found outside. */
  countsOnLoads(includesFound: boolean): boolean {
    const { residency } = this.#parts;
    for (const { blocks, external, blockCount, blockSize } of this.groups)
      for (let index = 0; index < blockCount; index++) {
        const block = blocks[index] as BlockId;
        // What is loaded within the step is not waited for.
        if (residency.isLoading(block) && residency.scheduledTokens[block] !== blockSize) return true;
        if (includesFound && external[index] === 1) return true;
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
      for (let index = 0; index < request.chains[group]!.count; index++)
        if (proposal.blocks[index] === NULL_BLOCK) places.push({ group, index });
    }
    return places;
  }

  /** Published pages first; else pages that another request has promised to fill. */
  #lookUp(request: KvRequest, group: number, proposal: GroupProposal): void {
    const { cached, computing } = this.#parts;
    const chain = request.chains[group]!;
    chain.extend(request.tokens);
    for (let index = 0; index < chain.count; index++) {
      let block = cached.find(group, chain.words, index);
      if (block === NULL_BLOCK) block = computing.find(group, chain.words, index);
      if (block !== NULL_BLOCK) proposal.set(index, block, proposal.blockSize);
    }
  }

  /** Found pages that nobody refers to are counted as available until this request takes them. */
  #reusedIdleCount({ blocks, blockCount }: GroupProposal): number {
    let revived = 0;
    for (let index = 0; index < blockCount; index++)
      if (blocks[index] !== NULL_BLOCK && this.#parts.pool.isAvailable(blocks[index] as BlockId)) revived++;
    return revived;
  }
}
