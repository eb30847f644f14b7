import type { BlockId } from './ids.ts';

/** The pages of one rank's pool, in place: what the runner computes with and transfers read and write. */
export interface KvPages {
  readonly pageCount: number;
  readonly pageBytes: number;
  /** The page itself, not a copy. */
  blockBytes(page: BlockId): Uint8Array;
}
