import type { BlockId, BlockIndex, GroupIndex } from './ids.ts';

/** A position in the block table that a request has for one KV group. */
export interface BlockPlace {
  readonly group: GroupIndex;
  readonly index: BlockIndex;
}

/** A place as the key of a map. */
export const placeName = ({ group, index }: BlockPlace): string => `${group}/${index}`;

/** A place, and the block that the request has there. */
export interface PlacedBlock extends BlockPlace {
  readonly block: BlockId;
}
