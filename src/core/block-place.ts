import type { BlockId } from './ids.ts';

/** A position in the block table that a request has for one KV group. */
export interface BlockPlace {
  /** Index of the group in `KvCacheSpec.groups`. */
  readonly group: number;
  /** Index in the block table: the block of tokens [index * blockSize, (index + 1) * blockSize). */
  readonly index: number;
}

/** A place as the key of a map. */
export const placeName = ({ group, index }: BlockPlace): string => `${group}/${index}`;

/** A place, and the block that the request has there. */
export interface PlacedBlock extends BlockPlace {
  readonly block: BlockId;
}
