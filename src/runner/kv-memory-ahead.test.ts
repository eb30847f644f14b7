import { describe, expect, it } from 'vitest';
import { UnmappedBlocks } from './kv-memory-ahead.ts';

const mebibyte = 1 << 20;
/** Blocks of 1 MiB with 64 rows. */
const pool = { baseAddress: 1000, blockBytes: mebibyte, blockCount: 11 };
const rowsPerBlock = 64;

function piecesOf(unmapped: UnmappedBlocks): (readonly [from: number, mebibytes: number])[] {
  const pieces: (readonly [number, number])[] = [];
  for (let piece = unmapped.next(); piece !== undefined; piece = unmapped.next())
    pieces.push([(piece.address - pool.baseAddress) / mebibyte, piece.byteLength / mebibyte]);
  return pieces;
}

describe('UnmappedBlocks', () => {
  it('returns the pieces after the used blocks, each once', () => {
    const unmapped = new UnmappedBlocks(pool, 5 * mebibyte);
    expect(piecesOf(unmapped)).toEqual([
      [0, 2],
      [2, 2],
      [4, 1],
    ]);
    expect(piecesOf(unmapped)).toEqual([]);
    expect(unmapped.used(Int32Array.of(64, 2 * 64 + 63, 5), rowsPerBlock)).toBe(true);
    expect(unmapped.used(Int32Array.of(64), rowsPerBlock)).toBe(false);
    expect(piecesOf(unmapped)).toEqual([
      [5, 2],
      [7, 1],
    ]);
  });

  it('skips blocks that were used before they were mapped', () => {
    const unmapped = new UnmappedBlocks(pool, 2 * mebibyte);
    unmapped.used(Int32Array.of(6 * 64), rowsPerBlock);
    expect(piecesOf(unmapped)).toEqual([[7, 2]]);
  });

  it('ends with the pool', () => {
    const unmapped = new UnmappedBlocks(pool, 100 * mebibyte);
    unmapped.used(Int32Array.of(8 * 64), rowsPerBlock);
    expect(piecesOf(unmapped)).toEqual([[9, 2]]);
    unmapped.used(Int32Array.of(11 * 64 - 1), rowsPerBlock);
    expect(piecesOf(unmapped)).toEqual([]);
  });

  it('ignores a step that writes nothing', () => {
    const unmapped = new UnmappedBlocks(pool, mebibyte);
    unmapped.used(new Int32Array(0), rowsPerBlock);
    expect(piecesOf(unmapped)).toEqual([[0, 1]]);
  });
});
