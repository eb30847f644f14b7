import type { BlockId } from './ids.ts';

/** The blocks of one rank's pool, in place: the runner computes with them, and transfers read and write them. */
export interface BlockMemory {
  readonly blockCount: number;
  readonly blockBytes: number;
  /** The memory of the block, not a copy. */
  bytesOf(block: BlockId): Uint8Array;
}

/** The blocks of one rank's pool in the memory of a device. Called while no graph computes. */
export interface DeviceBlocks {
  readonly blockCount: number;
  readonly blockBytes: number;
  /** Copies the block to host memory. */
  read(block: BlockId, into: Uint8Array): void;
  /** Copies all bytes of the block from host memory. */
  write(block: BlockId, bytes: Uint8Array): void;
}
