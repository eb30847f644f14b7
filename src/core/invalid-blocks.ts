import { type BlockId, NULL_BLOCK } from './ids.ts';
import { firstBlockRead, type KvCacheSpec } from './kv-spec.ts';
import { blockAt, type SequencePlan } from './step.ts';

/**
 * Blocks whose content is not valid: a load failed, a block is corrupt, a worker came back empty. This is the one place
 * that decides which rows of a step depend on such a block. The scheduler asks when it applies a result, a worker asks
 * before it computes.
 *
 * Ask for the sequences of a step in batch order: a sequence whose rows do not count makes the blocks invalid that these
 * rows were to fill, and later sequences may read them.
 */
export class InvalidBlocks {
  readonly #groups: KvCacheSpec['groups'];
  readonly #marks: Uint8Array;
  readonly #blocks: BlockId[] = [];

  constructor({ groups, blockCount }: Pick<KvCacheSpec, 'groups' | 'blockCount'>, blocks: readonly BlockId[]) {
    this.#groups = groups;
    this.#marks = new Uint8Array(blockCount);
    for (const block of blocks) this.add(block);
  }

  get blocks(): readonly BlockId[] {
    return this.#blocks;
  }

  has(block: BlockId): boolean {
    return this.#marks[block] === 1;
  }

  /** The null block means nothing and is never invalid. */
  add(block: BlockId): void {
    if (block === NULL_BLOCK || this.has(block)) return;
    this.#marks[block] = 1;
    this.#blocks.push(block);
  }

  /** Position of the sequence's first row that depends on an invalid block; that row and all later rows do not count. Infinity: all rows count. */
  firstRow({ spans, blockTables }: SequencePlan): number {
    let first = Infinity;
    for (const { start, end } of spans) {
      for (let g = 0; g < this.#groups.length; g++) {
        const group = this.#groups[g]!;
        const last = Math.floor((end - 1) / group.blockSize);
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

  /** The sequence's rows from position `first` on do not count: the blocks that they were to fill are invalid. */
  addRowsFrom(first: number, { spans, blockTables, writeTables = blockTables }: SequencePlan): void {
    for (const { start, end } of spans) {
      if (end <= first) continue;
      for (let g = 0; g < this.#groups.length; g++) {
        const { blockSize } = this.#groups[g]!;
        for (let index = Math.floor(Math.max(start, first) / blockSize); index * blockSize < end; index++)
          this.add(blockAt(writeTables[g]!, index));
      }
    }
  }
}
