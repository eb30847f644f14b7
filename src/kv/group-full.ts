import { type BlockId, type BlockIndex, blockIndex, NULL_BLOCK } from '../core/ids.ts';
import type { FullAttentionGroup } from '../core/kv-spec.ts';
import type { GroupProposal, KvGroup } from './group.ts';
import type { SpanList } from './span-list.ts';

/** Keeps the KV of all tokens while the request runs. It uses every cached block, also after a hole. */
export class FullGroup implements KvGroup {
  readonly allocatesAll = true;
  readonly needsOwnBlock = false;
  readonly #blockSize: number;

  constructor(spec: FullAttentionGroup) {
    this.#blockSize = spec.blockSize;
  }

  dropUnneeded(): void {
    // The last token reads every block.
  }

  blocksTaken({ blocks, indexCount }: GroupProposal, _: SpanList, isAvailable: (block: BlockId) => boolean): number {
    let taken = 0;
    for (let index = 0; index < indexCount; index++) {
      const block = blocks[index] as BlockId;
      if (block === NULL_BLOCK || isAvailable(block)) taken++;
    }
    return taken;
  }

  firstKept(): BlockIndex {
    return blockIndex(0);
  }

  blocksMax(tokenCount: number): number {
    return Math.ceil(tokenCount / this.#blockSize);
  }
}
