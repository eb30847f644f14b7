import { assert } from '../base/assert.ts';
import { type BlockId, type BlockIndex, blockIndex, blockIndexOf, NULL_BLOCK } from '../core/ids.ts';
import { firstBlockRead, type SlidingWindowGroup } from '../core/kv-spec.ts';
import { type GroupProposal, type KvGroup, takesBlock } from './group.ts';
import type { SpanList } from './span-list.ts';

/**
 * Keeps only the blocks that the tokens still to be computed read. Blocks are allocated when their tokens are
 * scheduled, and released when the window has passed them. Released blocks stay cached until the pool allocates them
 * again.
 *
 *   window 6, next token n        . . [# # #|# n         the block before the bracket is released
 */
export class WindowGroup implements KvGroup {
  readonly allocatesAll = false;
  readonly needsOwnBlock = false;
  readonly #spec: SlidingWindowGroup;

  constructor(spec: SlidingWindowGroup) {
    // With a window of 2 or more, each token needs the token before. So tokens of a block are always computed in order.
    assert(spec.window >= 2, `a window of ${spec.window} does not include the token before`);
    this.#spec = spec;
  }

  dropUnneeded(proposal: GroupProposal, spans: SpanList): void {
    let index = blockIndex(0);
    for (let i = 0; i < spans.count; i++) {
      // A token reads its own KV too, so a valid block stays even if only another group needs its tokens again.
      for (const first = this.firstKept(spans.start(i)); index < first && index < proposal.indexCount; index++)
        proposal.set(index, NULL_BLOCK, 0);
      index = blockIndex(Math.max(index, Math.ceil(spans.end(i) / this.#spec.blockSize)));
    }
  }

  /**
   * At each block that is computed: the blocks that its first token reads, itself, and those of the proposal after it, which wait
   * for later spans. Only blocks that other requests have cost nothing.
   */
  blocksTaken(proposal: GroupProposal, spans: SpanList, isAvailable: (block: BlockId) => boolean): number {
    const { blockSize } = this.#spec;
    let later = 0;
    for (let index = 0; index < proposal.indexCount; index++) if (takesBlock(proposal, index, isAvailable)) later++;
    let most = 0;
    // The blocks [first, next) are read or computed; `read` of them are taken.
    let [first, next, read] = [0, 0, 0];
    const isTaken = (index: number): boolean =>
      proposal.blocks[index] === NULL_BLOCK || takesBlock(proposal, index, isAvailable);
    for (let i = 0; i < spans.count; i++) {
      const [start, end] = [spans.start(i), spans.end(i)];
      for (let index = blockIndexOf(start, blockSize); index * blockSize < end; index++) {
        for (; next <= index; next++) {
          if (isTaken(next)) read++;
          if (takesBlock(proposal, next, isAvailable)) later--;
        }
        for (const from = this.firstKept(Math.max(start, index * blockSize)); first < from; first++)
          if (isTaken(first)) read--;
        most = Math.max(most, read + later);
      }
    }
    return most;
  }

  firstKept(position: number): BlockIndex {
    return firstBlockRead(this.#spec, position);
  }

  /** The blocks of `window` consecutive tokens at any position: enough if each step computes one token. */
  blocksMax(tokenCount: number): number {
    return Math.min(
      Math.ceil(tokenCount / this.#spec.blockSize),
      Math.ceil((this.#spec.window - 1) / this.#spec.blockSize) + 1,
    );
  }
}
