import { assert } from '../../base/assert.ts';
import { type BlockId, blockIndexOf, NULL_BLOCK } from '../../core/ids.ts';
import { blockAt, type SequencePlan } from '../../core/step.ts';

/** Adjacent rows of one request whose tokens are in one block of a state group. */
export interface StateSegment {
  readonly firstRow: number;
  readonly rowCount: number;
  /** The block with the state before the first row; undefined for the first token of a request: a state of zeros. */
  readonly read: BlockId | undefined;
  /** The block that gets the state after the last row. */
  readonly write: BlockId;
}

/**
 * Appends the segments of a sequence in a state group. Spans are cut at the ends of blocks, so that a step leaves a
 * checkpoint in each block that it fills. The state before a span is in the block of the token before.
 */
export function addSegments(
  segments: StateSegment[],
  { spans, blockTables, writeTables = blockTables }: SequencePlan,
  { group, blockSize, firstRow }: { readonly group: number; readonly blockSize: number; readonly firstRow: number },
): void {
  const [readTable, writeTable] = [blockTables[group]!, writeTables[group]!];
  let row = firstRow;
  for (const { start, end } of spans) {
    for (let from: number = start; from < end; ) {
      const index = blockIndexOf(from, blockSize);
      const to = Math.min(end, (index + 1) * blockSize);
      const read = from === 0 ? undefined : blockAt(readTable, blockIndexOf(from - 1, blockSize));
      const write = blockAt(writeTable, index);
      assert(read !== NULL_BLOCK && write !== NULL_BLOCK, 'a token reads a state and writes one');
      segments.push({ firstRow: row, rowCount: to - from, read, write });
      row += to - from;
      from = to;
    }
  }
}
