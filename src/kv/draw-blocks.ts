import { type BlockId, blockIndex, groupIndex, NULL_BLOCK } from '../core/ids.ts';
import type { KvParts } from './kv-parts.ts';

/** The state of a block for people. `invalid` and `recomputed`: the KV was lost while a request had it. */
export const cellStates = ['free', 'cached', 'referenced', 'loading', 'invalid', 'recomputed'] as const;
export type CellState = (typeof cellStates)[number];

/** The group of a cell whose block has no known group: a free block, or a block that only a transfer has. */
export const NO_GROUP = 31;

/** One byte per block: the state in the low three bits, the group in the others. */
export const cellOf = (state: CellState, group: number): number =>
  cellStates.indexOf(state) | (Math.min(group, NO_GROUP) << 3);

export const stateOfCell = (cell: number): CellState => cellStates[cell & 7]!;
export const groupOfCell = (cell: number): number => cell >>> 3;

/** Draws every block into `cells`, one cell per block of the pool. O(blocks + blocks of all tables). */
export function drawBlocks(parts: KvParts, cells: Uint8Array): void {
  const { pool, cached, residency, requests } = parts;
  cells[NULL_BLOCK] = cellOf('free', NO_GROUP);
  for (let block = (NULL_BLOCK + 1) as BlockId; block < pool.blockCount; block++) {
    const group = cached.groupOf(block) ?? NO_GROUP;
    if (pool.isAvailable(block)) cells[block] = cellOf(cached.has(block) ? 'cached' : 'free', group);
    else cells[block] = cellOf(residency.isLoading(block) ? 'loading' : 'referenced', group);
  }
  for (const request of requests) {
    if (request === undefined || !request.admitted) continue;
    for (let group = groupIndex(0); group < request.tables.length; group++) {
      const table = request.tables[group]!;
      for (let index = blockIndex(request.firstAllocated[group]!); index < table.length; index++) {
        const block = table.at(index);
        if (block !== NULL_BLOCK) cells[block] = cellOf(stateOfCell(cells[block]!), group);
      }
    }
    for (const places of [request.reserved, request.kept])
      for (const { block, group } of places) cells[block] = cellOf(stateOfCell(cells[block]!), group);
  }
}
