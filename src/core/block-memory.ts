import type { BlockId } from './ids.ts';

/** The blocks of one rank's pool, in place: the runner computes with them, and transfers read and write them. */
export interface BlockMemory {
  readonly blockCount: number;
  readonly blockBytes: number;
  /** The memory of the block, not a copy. */
  bytesOf(block: BlockId): Uint8Array;
}
