import type { NativeApi } from '../../ggml/ffi.ts';
import { type AttentionShape, kernelSizes } from './attention-kernel.ts';
import { NativeMemory } from './native-memory.ts';

/** `struct unit` of paged-attention.c, in 32-bit words; `partials` is 64 bits wide. */
const unitWords = 12;
const unitField = {
  table: 0,
  firstRow: 1,
  rowCount: 2,
  headFirst: 3,
  headEnd: 4,
  rangeFirst: 5,
  rangeEnd: 6,
  group: 7,
  groupSize: 8,
  groupPart: 9,
  partials: 10,
} as const;

/** Rows of q that belong to one sequence, neighbours in ascending order of position. */
export interface RowRun {
  /** Index of the sequence's first block in the table of tables. */
  readonly table: number;
  readonly firstRow: number;
  readonly rowCount: number;
}

/**
 * Cuts a step's attention into units that threads take one after another. Few queries (a decode) are computed for
 * several KV heads at once, because their KV then lies in one run of memory; many (a prompt) for one KV head each. Where
 * that makes fewer units than keep all threads busy, KV is cut into its ranges, and the unit that ends last joins them.
 * No cut changes a bit.
 */
export class WorkUnits {
  readonly #shape: AttentionShape;
  readonly #headCountKv: number;
  readonly #threads: number;
  readonly #window: number;
  readonly units: NativeMemory;
  unitCount = 0;
  /** Groups of units that are joined, and the floats that their partial results take. */
  groupCount = 0;
  partialFloats = 0;

  constructor(native: NativeApi, shape: AttentionShape, headCountKv: number, threads: number, window: number) {
    this.#shape = shape;
    this.#headCountKv = headCountKv;
    this.#threads = threads;
    this.#window = window;
    this.units = new NativeMemory(native);
  }

  plan(runs: readonly RowRun[], positions: Int32Array): void {
    this.unitCount = 0;
    this.groupCount = 0;
    this.partialFloats = 0;
    const rowsMax = Math.max(1, Math.floor(kernelSizes.queriesMax / this.#shape.group));
    const chunks = runs.reduce((sum, { rowCount }) => sum + Math.ceil(rowCount / rowsMax), 0);
    const wanted = this.#threads === 1 ? 1 : Math.ceil((4 * this.#threads) / Math.max(1, chunks));
    for (const { table, firstRow, rowCount } of runs) {
      // The last rows see most: their units are begun first.
      const last = Math.floor((rowCount - 1) / rowsMax) * rowsMax;
      for (let row = last; row >= 0; row -= rowsMax) {
        const count = Math.min(rowsMax, rowCount - row);
        this.#planRows({ table, firstRow: firstRow + row, rowCount: count }, positions, wanted);
      }
    }
  }

  /** At least `wanted` units for these rows, where they have so many heads and ranges. */
  #planRows(rows: RowRun, positions: Int32Array, wanted: number): void {
    const queries = rows.rowCount * this.#shape.group;
    const isWide = queries >= kernelSizes.queriesWide;
    const headsMax = isWide ? 1 : Math.max(1, Math.floor(kernelSizes.queriesMax / queries));
    const first = positions[rows.firstRow] ?? 0;
    const rangeFirst = this.#window === 0 ? 0 : Math.floor(Math.max(0, first + 1 - this.#window) / kernelSizes.range);
    const rangeEnd = Math.floor((positions[rows.firstRow + rows.rowCount - 1] ?? 0) / kernelSizes.range) + 1;
    const headUnitsMin = Math.ceil(this.#headCountKv / headsMax);
    const pieces = Math.min(rangeEnd - rangeFirst, Math.ceil(wanted / headUnitsMin));
    const headUnits = Math.max(headUnitsMin, Math.min(this.#headCountKv, Math.ceil(wanted / pieces)));
    const headStep = Math.ceil(this.#headCountKv / headUnits);
    for (let head = 0; head < this.#headCountKv; head += headStep) {
      const headEnd = Math.min(head + headStep, this.#headCountKv);
      const group = pieces > 1 ? this.groupCount++ : -1;
      const partials = this.partialFloats;
      for (let piece = 0; piece < pieces; piece++) {
        const from = rangeFirst + Math.floor((piece * (rangeEnd - rangeFirst)) / pieces);
        const to = rangeFirst + Math.floor(((piece + 1) * (rangeEnd - rangeFirst)) / pieces);
        this.#add(rows, head, headEnd, from, to, group, rangeEnd - rangeFirst, from - rangeFirst, partials);
      }
      if (pieces > 1) {
        this.partialFloats += (rangeEnd - rangeFirst) * (headEnd - head) * queries * (this.#shape.headDim + 2);
      }
    }
  }

  #add(
    rows: RowRun,
    headFirst: number,
    headEnd: number,
    rangeFirst: number,
    rangeEnd: number,
    group: number,
    groupSize: number,
    groupPart: number,
    partials: number,
  ): void {
    const at = this.unitCount++ * unitWords;
    this.#reserve(this.unitCount);
    const { words } = this.units;
    words[at + unitField.table] = rows.table;
    words[at + unitField.firstRow] = rows.firstRow;
    words[at + unitField.rowCount] = rows.rowCount;
    words[at + unitField.headFirst] = headFirst;
    words[at + unitField.headEnd] = headEnd;
    words[at + unitField.rangeFirst] = rangeFirst;
    words[at + unitField.rangeEnd] = rangeEnd;
    words[at + unitField.group] = group;
    words[at + unitField.groupSize] = groupSize;
    words[at + unitField.groupPart] = groupPart;
    this.units.setInt64((at + unitField.partials) * 4, partials);
  }

  #reserve(count: number): void {
    const before = this.units.words;
    this.units.reserve(count * unitWords * 4);
    if (this.units.words !== before) this.units.words.set(before);
  }
}
