import { assert } from '../base/assert.ts';
import { NULL_BLOCK } from '../core/ids.ts';
import { firstBlockRead, type SlidingWindowGroup } from '../core/kv-spec.ts';
import type { GroupProposal, KvGroup } from './group.ts';
import type { SpanList } from './span-list.ts';

/**
 * Keeps the blocks that the tokens still to be computed can see, and no others: pages are taken when their rows are
 * planned, and let go (to be found by others, for as long as they last) when the window has moved on.
 *
 *   window 6, next token n        . . [# # #|# n         the block before the bracket is let go
 */
export class WindowGroup implements KvGroup {
  readonly allocatesAll = false;
  readonly needsOwnBlock = false;
  readonly #spec: SlidingWindowGroup;

  constructor(spec: SlidingWindowGroup) {
    // Each token of a wider window needs the one before it, so what is computed in a block always begins where it is valid.
    assert(spec.window >= 2, `a window of ${spec.window} sees nothing but itself`);
    this.#spec = spec;
  }

  dropUnneeded(proposal: GroupProposal, spans: SpanList): void {
    let index = 0;
    for (let i = 0; i < spans.count; i++) {
      // A row reads its own entry too, so a valid block that is passed by for another group's sake stays.
      for (const first = this.firstKept(spans.start(i)); index < first && index < proposal.blockCount; index++)
        proposal.set(index, NULL_BLOCK, 0);
      index = Math.max(index, Math.ceil(spans.end(i) / this.#spec.blockSize));
    }
  }

  newBlockCount(proposal: GroupProposal): number {
    return this.blocksMax(proposal.blockCount * this.#spec.blockSize);
  }

  firstKept(position: number): number {
    return firstBlockRead(this.#spec, position);
  }

  /** With steps of one row: `window` tokens in a row, wherever they begin. */
  blocksMax(tokenCount: number): number {
    return Math.min(
      Math.ceil(tokenCount / this.#spec.blockSize),
      Math.ceil((this.#spec.window - 1) / this.#spec.blockSize) + 1,
    );
  }
}
