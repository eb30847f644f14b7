import type { BlockPlace } from '../core/block-place.ts';
import { type BlockId, blockIndex, type GroupIndex, groupIndex, NULL_BLOCK } from '../core/ids.ts';
import type { Span } from '../core/step.ts';
import { chooseLoads, loadsOf } from './choose-loads.ts';
import { GroupProposal } from './group.ts';
import type { KvParts } from './kv-parts.ts';
import type { KvRequest } from './kv-request.ts';
import { planSpans } from './planner.ts';
import { SpanList } from './span-list.ts';

/**
 * The blocks that a request without blocks would get if it were admitted now. Scratch memory: one proposal at a time.
 */
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
   * Looks up the request's blocks (only if `useCache`), adds the blocks that a connector `found`, and drops the blocks
   * that the plan does not need. Returns how many available blocks an admission would take. O(blocks).
   */
  build(request: KvRequest, useCache: boolean, found: readonly BlockPlace[]): number {
    const { groups, enablePrefixCaching } = this.#parts;
    for (let group = groupIndex(0); group < groups.length; group++) {
      const proposal = this.groups[group]!;
      proposal.reset(Math.ceil(request.tokens.length / proposal.blockSize));
      if (useCache && enablePrefixCaching) this.#lookUp(request, group, proposal);
    }
    for (let i = 0; i < found.length; i++) this.groups[found[i]!.group]!.setExternal(found[i]!.index);
    if (this.#isSelective || found.length > 0) {
      planSpans(request.tokens.length, this.groups, this.#spans, request.computeFrom);
      if (found.length > 0) for (const group of this.groups) chooseLoads(group, this.#spans);
      for (let group = groupIndex(0); group < groups.length; group++)
        groups[group]!.dropUnneeded(this.groups[group]!, this.#spans);
    }
    let blocks = 0;
    for (let group = groupIndex(0); group < groups.length; group++) {
      blocks += groups[group]!.newBlockCount(this.groups[group]!);
      // `newBlockCount` of a full group includes the loads. Other groups count only blocks of computed tokens.
      if (!groups[group]!.allocatesAll) blocks += loadsOf(this.groups[group]!);
      blocks += this.#reusedIdleCount(this.groups[group]!);
    }
    return blocks;
  }

  /** The tokens that would be computed, and the blocks that would be loaded. Called after `build`. */
  preview(request: KvRequest): { spans: Span[]; loads: BlockPlace[] } {
    planSpans(request.tokens.length, this.groups, this.#spans, request.computeFrom);
    const loads: BlockPlace[] = [];
    for (let group = groupIndex(0); group < this.groups.length; group++) {
      const { external, indexCount } = this.groups[group]!;
      for (let index = blockIndex(0); index < indexCount; index++)
        if (external[index] === 1) loads.push({ group, index });
    }
    return { spans: this.#spans.toArray() as Span[], loads };
  }

  /** The blocks that the request would read, cached or not, and their places. Called after `build`. */
  chosen(): BlockPlace[] {
    const places: BlockPlace[] = [];
    for (let group = groupIndex(0); group < this.groups.length; group++) {
      const { blocks, external, indexCount } = this.groups[group]!;
      for (let index = blockIndex(0); index < indexCount; index++)
        if (blocks[index] !== NULL_BLOCK || external[index] === 1) places.push({ group, index });
    }
    return places;
  }

  /** Whether the plan counts on a load in progress, or (`includesFound`) on blocks that a connector promised. */
  countsOnLoads(includesFound: boolean): boolean {
    const { residency } = this.#parts;
    for (const { blocks, external, indexCount, blockSize } of this.groups)
      for (let index = 0; index < indexCount; index++) {
        const block = blocks[index] as BlockId;
        // The request does not wait for a sync load, which ends within the step.
        if (residency.isLoading(block) && residency.scheduledTokens[block] !== blockSize) return true;
        if (includesFound && external[index] === 1) return true;
      }
    return false;
  }

  /** The full blocks of the request that are neither cached nor being computed or loaded. */
  lacking(request: KvRequest): BlockPlace[] {
    const places: BlockPlace[] = [];
    for (let group = groupIndex(0); group < this.groups.length; group++) {
      const proposal = this.groups[group]!;
      proposal.reset(Math.ceil(request.tokens.length / proposal.blockSize));
      this.#lookUp(request, group, proposal);
      const count = request.reusableBlocks(request.chains[group]!);
      for (let index = blockIndex(0); index < count; index++)
        if (proposal.blocks[index] === NULL_BLOCK) places.push({ group, index });
    }
    return places;
  }

  /** Finds cached blocks first, then blocks that another request computes or loads. */
  #lookUp(request: KvRequest, group: GroupIndex, proposal: GroupProposal): void {
    const { cached, computing } = this.#parts;
    const chain = request.chains[group]!;
    chain.extend(request.tokens);
    const count = request.reusableBlocks(chain);
    for (let index = blockIndex(0); index < count; index++) {
      let block = cached.find(group, chain.words, index);
      if (block === NULL_BLOCK) block = computing.find(group, chain.words, index);
      if (block !== NULL_BLOCK) proposal.set(index, block, proposal.blockSize);
    }
  }

  /** Blocks of the proposal that are still counted as available, because no request references them. */
  #reusedIdleCount({ blocks, indexCount }: GroupProposal): number {
    let idle = 0;
    for (let index = 0; index < indexCount; index++)
      if (blocks[index] !== NULL_BLOCK && this.#parts.pool.isAvailable(blocks[index] as BlockId)) idle++;
    return idle;
  }
}
