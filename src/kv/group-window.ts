import { assert } from '../base/assert.ts';
import { type BlockIndex, blockIndex, NULL_BLOCK } from '../core/ids.ts';
import { firstBlockRead, type SlidingWindowGroup } from '../core/kv-spec.ts';
import type { GroupProposal, KvGroup } from './group.ts';
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

  newBlockCount(proposal: GroupProposal): number {
    return this.blocksMax(proposal.indexCount * this.#spec.blockSize);
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
