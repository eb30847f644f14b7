import { NULL_BLOCK } from '../core/ids.ts';
import { firstBlockRead, type StateGroup as StateGroupSpec } from '../core/kv-spec.ts';
import type { GroupProposal, KvGroup } from './group.ts';
import type { SpanList } from './span-list.ts';

/**
 * A recurrent state. The page of a block holds one state: the running one while its tokens are computed, and in the end
 * the checkpoint after its last token, which is what others can start from. A row reads the page of the token before
 * it and writes its own block's.
 *
 * Rows that are computed again (for another group's sake) need a page for the running state although the checkpoint
 * behind them is valid: `rowsNeedOwnPage`.
 */
export class StateGroup implements KvGroup {
  readonly allocatesAll = false;
  readonly needsOwnBlock = true;
  readonly #spec: StateGroupSpec;

  constructor(spec: StateGroupSpec) {
    this.#spec = spec;
  }

  /** Of use are only the states right before a span. */
  dropUnneeded(proposal: GroupProposal, spans: SpanList): void {
    let index = 0;
    for (let i = 0; i < spans.count; i++) {
      const before = this.firstKept(spans.start(i));
      if (spans.start(i) === 0) continue;
      for (; index < before && index < proposal.blockCount; index++) proposal.set(index, NULL_BLOCK, 0);
      index = before + 1;
    }
    for (; index < proposal.blockCount; index++) proposal.set(index, NULL_BLOCK, 0);
  }

  newBlockCount(proposal: GroupProposal): number {
    return this.blocksMax(proposal.blockCount * this.#spec.blockSize);
  }

  firstKept(position: number): number {
    return firstBlockRead(this.#spec, position);
  }

  /** The state before, the running one, and a checkpoint that waits while rows pass through its block. */
  blocksMax(tokenCount: number): number {
    return Math.min(Math.ceil(tokenCount / this.#spec.blockSize) + 1, 3);
  }
}
