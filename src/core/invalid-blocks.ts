import { type BlockId, blockIndexOf, groupIndex, NULL_BLOCK } from './ids.ts';
import { firstBlockRead, type KvCacheSpec } from './kv-spec.ts';
import { blockAt, type SequencePlan } from './step.ts';

/**
 * Blocks whose KV is invalid: a load failed, a block is corrupt, or a worker restarted with empty memory. This class
 * alone decides which tokens of a step depend on such a block. The scheduler asks it when it applies a result, and a
 * worker asks it before it computes.
 *
 * Ask for the sequences of a step in batch order. If tokens of a sequence do not count, the blocks that these tokens
 * fill become invalid, and later sequences may read them.
 */
export class InvalidBlocks {
  readonly #groups: KvCacheSpec['groups'];
  /** One bit per block of the pool: a step with a failed load needs several of these sets. */
  readonly #marks: Uint32Array;
  readonly #blocks: BlockId[] = [];

  constructor({ groups, blockCount }: Pick<KvCacheSpec, 'groups' | 'blockCount'>, blocks: readonly BlockId[]) {
    this.#groups = groups;
    this.#marks = new Uint32Array(Math.ceil(blockCount / 32));
    for (const block of blocks) this.add(block);
  }

  get blocks(): readonly BlockId[] {
    return this.#blocks;
  }

  has(block: BlockId): boolean {
    return ((this.#marks[block >>> 5]! >>> (block & 31)) & 1) === 1;
  }

  /** Ignores the null block: its content has no meaning. */
  add(block: BlockId): void {
    if (block === NULL_BLOCK || this.has(block)) return;
    this.#marks[block >>> 5]! |= 1 << (block & 31);
    this.#blocks.push(block);
  }

  /**
   * Position of the sequence's first scheduled token that depends on an invalid block. This token and all later ones do
   * not count. Infinity: all tokens count.
   */
  firstDependentToken({ spans, blockTables }: SequencePlan): number {
    let first = Infinity;
    for (const { start, end } of spans) {
      for (let g = groupIndex(0); g < this.#groups.length; g++) {
        const group = this.#groups[g]!;
        const last = blockIndexOf(end - 1, group.blockSize);
        for (let index = firstBlockRead(group, start); index <= last; index++) {
          if (!this.has(blockAt(blockTables[g]!, index))) continue;
          first = Math.min(first, Math.max(start, index * group.blockSize));
          break;
        }
      }
      if (first !== Infinity) break;
    }
    return first;
  }

  /** Adds the blocks that the sequence's scheduled tokens fill from position `first` on: these tokens do not count. */
  addBlocksFrom(first: number, { spans, blockTables, writeTables = blockTables }: SequencePlan): void {
    for (const { start, end } of spans) {
      if (end <= first) continue;
      for (let g = groupIndex(0); g < this.#groups.length; g++) {
        const { blockSize } = this.#groups[g]!;
        for (let index = blockIndexOf(Math.max(start, first), blockSize); index * blockSize < end; index++)
          this.add(blockAt(writeTables[g]!, index));
      }
    }
  }
}
