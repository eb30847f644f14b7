import type { BlockKey } from '../connector/block-key.ts';
import type { ValidBlock } from '../connector/connector.ts';
import type { BlockId } from '../core/ids.ts';

/** Whether a block is newly valid, and whether the pool has allocated it since. */
type BlockState = 0 | 1 | 2;
const [other, valid, overwritten] = [0, 1, 2] as const satisfies readonly BlockState[];

/**
 * Blocks that became valid since the last step. The next step offers them to the connector, which may save them.
 *
 * The pool may allocate such a block before it is offered. The block still has its content until the step writes, so it is offered
 * all the same, and its save is flushed.
 */
export class NewlyValid {
  #blocks: ValidBlock[] = [];
  readonly #states: Uint8Array;

  constructor(blockCount: number) {
    this.#states = new Uint8Array(blockCount);
  }

  get isEmpty(): boolean {
    return this.#blocks.length === 0;
  }

  add(block: ValidBlock): void {
    this.#states[block.block] = valid;
    this.#blocks.push(block);
  }

  /** The pool has allocated the block: the next step overwrites it. */
  allocated(block: BlockId): void {
    if (this.#states[block] === valid) this.#states[block] = overwritten;
  }

  /** Whether the next step overwrites the block, which is newly valid. */
  isOverwritten(block: BlockId): boolean {
    return this.#states[block] === overwritten;
  }

  /** The newly valid block with this key that the next step overwrites. The prefix cache no longer finds it. */
  overwrittenBlock(key: BlockKey): BlockId | undefined {
    return this.#blocks.find((candidate) => candidate.key === key && this.isOverwritten(candidate.block))?.block;
  }

  /** These blocks are invalid, and must not be saved. */
  drop(invalid: ReadonlySet<BlockId>): void {
    this.#keep(({ block }) => !invalid.has(block));
  }

  /** All newly valid blocks. `offered` follows. */
  get all(): readonly ValidBlock[] {
    return this.#blocks;
  }

  /** The connector was offered all blocks. */
  offered(): void {
    this.#keep(() => false);
  }

  #keep(isKept: (block: ValidBlock) => boolean): void {
    const before = this.#blocks;
    if (before.length === 0) return;
    this.#blocks = before.filter(isKept);
    if (this.#blocks.length === before.length) return;
    for (const block of before) if (!isKept(block)) this.#states[block.block] = other;
  }
}
