import { describe, expect, it } from 'vitest';
import { blockId } from '../../core/ids.ts';
import { loadNative } from '../../ggml/ffi.ts';
import { StateTables } from './layer-states.ts';
import type { StateSegment } from './segments.ts';

const native = loadNative();
const poolAddress = 1 << 20;
const blockBytes = 4096;

/** Group 0 has attention; the layers 1 and 2 have states in group 1, and layer 3 in group 2. */
function newTables(isHost = true): StateTables {
  const memory = {
    isHost,
    addressOf: (block: number) => poolAddress + block * blockBytes,
    stateView: () => {
      throw new Error('no graph');
    },
  };
  return new StateTables(native, memory, [
    { kind: 'attention', index: 0, group: 0, place: 0, window: undefined },
    { kind: 'state', group: 1, offset: 0, elements: 8 },
    { kind: 'state', group: 1, offset: 32, elements: 8 },
    { kind: 'state', group: 2, offset: 0, elements: 8 },
  ]);
}

const segment = (firstRow: number, rowCount: number, read: number | undefined, write: number): StateSegment => ({
  firstRow,
  rowCount,
  read: read === undefined ? undefined : blockId(read),
  write: blockId(write),
});

/** What a kernel reads at the address of a layer: `struct state_layer` of states.h. */
function readRecords(address: number) {
  const at = (from: number, bytes: number): DataView => new DataView(native.memoryAt(from, bytes));
  const layer = at(address, 16);
  const rows = at(Number(layer.getBigUint64(0, true)), 16);
  const count = Number(rows.getBigInt64(8, true));
  const segments = at(Number(rows.getBigUint64(0, true)), count * 24);
  return {
    offset: Number(layer.getBigInt64(8, true)),
    segments: Array.from({ length: count }, (_, i) => ({
      read: Number(segments.getBigUint64(24 * i, true)),
      write: Number(segments.getBigUint64(24 * i + 8, true)),
      firstRow: segments.getInt32(24 * i + 16, true),
      rowCount: segments.getInt32(24 * i + 20, true),
    })),
  };
}

describe('the states of layers', () => {
  it('have records with the addresses of their blocks, which another step changes in place', () => {
    const tables = newTables();
    tables.begin([[], [segment(0, 5, undefined, 3), segment(5, 1, 4, 4)], [segment(0, 6, 7, 8)]]);
    const addresses = [1, 2, 3].map((index) => tables.layer(index).address);
    const first = { read: 0, write: poolAddress + 3 * blockBytes, firstRow: 0, rowCount: 5 };
    const second = {
      read: poolAddress + 4 * blockBytes,
      write: poolAddress + 4 * blockBytes,
      firstRow: 5,
      rowCount: 1,
    };
    const other = { read: poolAddress + 7 * blockBytes, write: poolAddress + 8 * blockBytes, firstRow: 0, rowCount: 6 };
    expect(addresses.map(readRecords)).toEqual([
      { offset: 0, segments: [first, second] },
      { offset: 32, segments: [first, second] },
      { offset: 0, segments: [other] },
    ]);

    const many = Array.from({ length: 100 }, (_, i) => segment(i, 1, i + 1, i + 1));
    tables.rebind([[], many, []]);
    expect([1, 2, 3].map((index) => tables.layer(index).address)).toEqual(addresses);
    const [of1, of2, of3] = addresses.map(readRecords);
    expect(of1!.segments).toHaveLength(100);
    expect(of1!.segments.at(-1)).toMatchObject({ write: poolAddress + 100 * blockBytes, firstRow: 99 });
    expect(of2!.segments).toEqual(of1!.segments);
    expect(of3!.segments).toEqual([]);
  });

  it('need another graph in the next step only if the graph depends on the segments', () => {
    const segments = [[], [segment(0, 5, undefined, 3)], []];
    const tables = newTables(false);
    tables.begin(segments);
    expect(tables.layer(1).segments).toEqual(segments[1]);
    expect(tables.isFixed).toBe(false);
    tables.layer(1).fixSegments();
    expect(tables.isFixed).toBe(true);
    tables.begin(segments);
    expect(tables.isFixed).toBe(false);
  });

  it('are those of layers with a state only', () => {
    expect(() => newTables().layer(0)).toThrow('a layer with a state');
  });
});
