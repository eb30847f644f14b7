import type { BlockId } from './ids.ts';

/** The pages of one rank's pool, in place: what the runner computes with and transfers read and write. */
export interface BlockMemory {
  readonly blockCount: number;
  readonly blockBytes: number;
  /** The page itself, not a copy. */
  bytesOf(block: BlockId): Uint8Array;
}
