import { type BlockId, type BlockIndex, blockIndex, blockIndexOf, NULL_BLOCK } from '../core/ids.ts';
import { firstBlockRead, type StateGroup as StateGroupSpec } from '../core/kv-spec.ts';
import { type GroupProposal, type KvGroup, takesBlock } from './group.ts';
import type { SpanList } from './span-list.ts';

/**
 * A recurrent state. A block holds one state: the running state while its tokens are computed, then the checkpoint
 * after its last token. Other requests can start from the checkpoint. A token reads the block of the token before and
 * writes its own block.
 *
 * Tokens that only another group needs again also write a running state. They need a block of their own for it, because
 * the checkpoint at the end of their block is valid and stays: `needsOwnBlock`.
 */
export class StateGroup implements KvGroup {
  readonly allocatesAll = false;
  readonly needsOwnBlock = true;
  readonly #spec: StateGroupSpec;

  constructor(spec: StateGroupSpec) {
    this.#spec = spec;
  }

  /** Keeps only the states right before a span. */
  dropUnneeded(proposal: GroupProposal, spans: SpanList): void {
    let index = blockIndex(0);
    for (let i = 0; i < spans.count; i++) {
      // A span that starts within a block starts from a running state.
      if (spans.start(i) === 0 || spans.start(i) % this.#spec.blockSize !== 0) continue;
      const before = this.firstKept(spans.start(i));
      for (; index < before && index < proposal.indexCount; index++) proposal.set(index, NULL_BLOCK, 0);
      index = blockIndex(before + 1);
    }
    for (; index < proposal.indexCount; index++) proposal.set(index, NULL_BLOCK, 0);
    const { running } = proposal;
    let count = 0;
    for (const state of running) if (spans.hasStart(state.position)) running[count++] = state;
    running.length = count;
  }

  /** In each span: the state before it, or the block before in which a state was just written; the running state; and later states. */
  blocksTaken(proposal: GroupProposal, spans: SpanList, isAvailable: (block: BlockId) => boolean): number {
    const { blockSize } = this.#spec;
    let later = 0;
    for (let index = 0; index < proposal.indexCount; index++) if (takesBlock(proposal, index, isAvailable)) later++;
    let most = 0;
    let next = 0;
    for (let i = 0; i < spans.count; i++) {
      const start = spans.start(i);
      let before = 0;
      for (; next * blockSize < start; next++) {
        if (!takesBlock(proposal, next, isAvailable)) continue;
        later--;
        before++;
      }
      if (blockIndexOf(start, blockSize) < blockIndexOf(spans.end(i) - 1, blockSize)) before = 1;
      most = Math.max(most, before + 1 + later);
    }
    return most;
  }

  firstKept(position: number): BlockIndex {
    return firstBlockRead(this.#spec, position);
  }

  /** The state before the block, the running state, and a reserved checkpoint. A kept state is released if blocks lack. */
  blocksMax(tokenCount: number): number {
    return Math.min(Math.ceil(tokenCount / this.#spec.blockSize) + 1, 3);
  }
}
