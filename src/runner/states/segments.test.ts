import { describe, expect, it } from 'vitest';
import { blockId } from '../../core/ids.ts';
import type { SequencePlan } from '../../core/step.ts';
import { addSegments, type StateSegment } from './segments.ts';

const table = (ids: number[]) => ({ ids: Int32Array.from(ids), length: ids.length });

/** Segments of a sequence whose state group has blocks of 8 tokens, from row 5 on. */
function segmentsOf(spans: [number, number][], blocks: number[], writeBlocks?: number[]): StateSegment[] {
  const attention = table([]);
  const sequence = {
    spans: spans.map(([start, end]) => ({ start, end })),
    blockTables: [attention, table(blocks)],
    ...(writeBlocks === undefined ? {} : { writeTables: [attention, table(writeBlocks)] }),
  } as unknown as SequencePlan;
  const segments: StateSegment[] = [];
  addSegments(segments, sequence, { group: 1, blockSize: 8, firstRow: 5 });
  return segments;
}
const segment = (firstRow: number, rowCount: number, read: number | undefined, write: number) => ({
  firstRow,
  rowCount,
  read: read === undefined ? undefined : blockId(read),
  write: blockId(write),
});

describe('the segments of a sequence', () => {
  it('begin with a state of zeros, and end at each checkpoint', () => {
    expect(segmentsOf([[0, 20]], [3, 4, 7])).toEqual([
      segment(5, 8, undefined, 3),
      segment(13, 8, 3, 4),
      segment(21, 4, 4, 7),
    ]);
  });

  it('continue the running state in its block', () => {
    expect(segmentsOf([[20, 21]], [0, 0, 7])).toEqual([segment(5, 1, 7, 7)]);
  });

  it('do not write the checkpoint that they continue', () => {
    expect(segmentsOf([[8, 12]], [3, 4])).toEqual([segment(5, 4, 3, 4)]);
  });

  it('continue other checkpoints in each span', () => {
    const spans: [number, number][] = [
      [8, 10],
      [16, 17],
    ];
    expect(segmentsOf(spans, [3, 4, 6], [3, 9, 6])).toEqual([segment(5, 2, 3, 9), segment(7, 1, 4, 6)]);
  });
});
