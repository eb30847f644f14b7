import type { BlockPlace } from '../core/block-place.ts';
import { type BlockId, blockIndex, type GroupIndex, groupIndex, NULL_BLOCK } from '../core/ids.ts';
import type { Span } from '../core/step.ts';
import { chooseLoads } from './choose-loads.ts';
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
  /** Whether some groups do not keep all blocks. */
  readonly isSelective: boolean;

  constructor(parts: KvParts) {
    this.#parts = parts;
    this.groups = parts.spec.groups.map((group) => new GroupProposal(group));
    this.isSelective = parts.groups.some((group) => !group.allocatesAll);
  }

  /**
   * Looks up the request's blocks (unless not `usesPool`), adds the blocks that a connector `found`, and drops the blocks that the plan does not
   * need. Returns how many available blocks an admission would take. O(blocks).
   */
  build(request: KvRequest, found: readonly BlockPlace[], usesPool = true): number {
    for (let group = groupIndex(0); group < this.groups.length; group++) {
      const proposal = this.groups[group]!;
      proposal.reset(Math.ceil(request.tokens.length / proposal.blockSize));
      if (usesPool && this.#parts.enablePrefixCaching) this.#lookUp(request, group, proposal);
    }
    for (let i = 0; i < found.length; i++) this.groups[found[i]!.group]!.setExternal(found[i]!.index);
    if (this.isSelective || found.length > 0) this.#plan(request, found.length > 0);
    return this.#blocksTaken();
  }

  /**
   * Called after `build`, if the pool has too few blocks: drops all windows and states after the first token that is computed.
   * They would wait in the pool until the tokens before them are computed. Then hits take no more blocks than computing all
   * tokens does. Returns as `build`.
   */
  keepPrefix(request: KvRequest): number {
    const start = this.#spans.start(0);
    for (let group = groupIndex(0); group < this.groups.length; group++) {
      const proposal = this.groups[group]!;
      if (this.#parts.groups[group]!.allocatesAll) continue;
      // A window reads the tokens before `start` in the same block.
      for (let index = blockIndex(Math.ceil(start / proposal.blockSize)); index < proposal.indexCount; index++)
        proposal.set(index, NULL_BLOCK, 0);
    }
    this.#plan(request, true);
    return this.#blocksTaken();
  }

  #plan(request: KvRequest, hasFound: boolean): void {
    planSpans(request.tokens.length, this.groups, this.#spans, request.computeFrom);
    if (hasFound) for (const group of this.groups) chooseLoads(group, this.#spans);
    for (let group = groupIndex(0); group < this.groups.length; group++)
      this.#parts.groups[group]!.dropUnneeded(this.groups[group]!, this.#spans);
  }

  #blocksTaken(): number {
    const { groups, pool } = this.#parts;
    const isAvailable = (block: BlockId): boolean => pool.isAvailable(block);
    let blocks = 0;
    for (let group = groupIndex(0); group < groups.length; group++)
      blocks += groups[group]!.blocksTaken(this.groups[group]!, this.#spans, isAvailable);
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
}
