import type { NativeApi } from '../../ggml/ffi.ts';
import { NativeMemory } from '../../native/native-memory.ts';
import { type AttentionShape, kernelSizes } from './attention-kernel.ts';
import { findSharedPrefixes, type PrefixTree } from './shared-prefixes.ts';

/** `struct unit` of attention-records.h, in 32-bit words. */
const unitWords = 8;
const unitField = {
  table: 0,
  firstRow: 1,
  rowCount: 2,
  headFirst: 3,
  headEnd: 4,
  rangeFirst: 5,
  rangeEnd: 6,
  isSplit: 7,
} as const;

/** Adjacent rows of q that belong to one sequence, in ascending order of position. */
export interface RowRun {
  /** Index of the sequence's first block in the concatenated block tables. */
  readonly table: number;
  readonly firstRow: number;
  readonly rowCount: number;
}

/** Ranges of KV: [first, end). */
interface Ranges {
  readonly first: number;
  readonly end: number;
}

export interface WorkOptions {
  readonly headCountKv: number;
  readonly threads: number;
  /** Tokens that a row sees; 0: all. */
  readonly window: number;
}

/** Units for each thread, if there are so many ranges: the threads finish at about the same time. */
const unitsPerThread = 4;

/**
 * Splits a step's attention into units, which threads take one after another. A unit with few queries (a decode)
 * computes all KV heads of some ranges, because their KV is contiguous in memory. Only if there are fewer ranges than
 * threads, its heads are split too. A unit with many queries (a prompt) computes one KV head. If these units are too few
 * for all threads, KV is split into ranges. Requests with a shared prefix are computed together for the length of the
 * prefix, so the prefix is read once. The thread that finishes the last unit of a row joins the row's ranges. No split
 * changes a bit.
 */
export class WorkUnits {
  readonly #shape: AttentionShape;
  readonly #headCountKv: number;
  readonly #threads: number;
  /** Tokens that a row sees; 0: all. */
  readonly window: number;
  readonly units: NativeMemory;
  /** The index in q of each row: rows that are computed together are adjacent here. */
  readonly rowOf: NativeMemory;
  /** Of the rows, in the order of `rowOf`. */
  readonly positions: NativeMemory;
  /** Of split rows: the index of their first partial result. */
  readonly partialOf: NativeMemory;
  unitCount = 0;
  rowCount = 0;
  partialFloats = 0;
  #partials = 0;

  constructor(native: NativeApi, shape: AttentionShape, { headCountKv, threads, window }: WorkOptions) {
    this.#shape = shape;
    this.#headCountKv = headCountKv;
    this.#threads = threads;
    this.window = window;
    this.units = new NativeMemory(native);
    this.rowOf = new NativeMemory(native);
    this.positions = new NativeMemory(native);
    this.partialOf = new NativeMemory(native);
  }

  /** `positions`: of the rows of q; `tables`: all block tables, one after another. */
  plan(runs: readonly RowRun[], positions: Int32Array, tables: Int32Array): void {
    this.unitCount = 0;
    this.rowCount = 0;
    this.#partials = 0;
    const bytes = 4 * runs.reduce((sum, { rowCount }) => sum + rowCount, 0);
    for (const memory of [this.rowOf, this.positions, this.partialOf]) memory.reserve(bytes);
    const { blockSize } = this.#shape;
    const sharing =
      this.window === 0 ? findSharedPrefixes(runs, positions, tables, blockSize) : { trees: [], alone: runs };
    const rowsMax = this.#rowsMax;
    const chunks =
      sharing.trees.length + sharing.alone.reduce((sum, { rowCount }) => sum + Math.ceil(rowCount / rowsMax), 0);
    const wanted = this.#threads === 1 ? 1 : Math.ceil((unitsPerThread * this.#threads) / Math.max(1, chunks));
    for (const tree of sharing.trees) this.#planTree(tree, positions, wanted);
    for (const run of sharing.alone) this.#planRun(run, positions, wanted);
    this.partialFloats = this.#partials * this.#headCountKv * this.#shape.group * (this.#shape.headDim + 2);
  }

  /** The largest number of rows in a unit. */
  get #rowsMax(): number {
    return Math.max(1, Math.floor(kernelSizes.queriesMax / this.#shape.group));
  }

  #planRun({ table, firstRow, rowCount }: RowRun, positions: Int32Array, wanted: number): void {
    const first = this.#placeRows(firstRow, rowCount, positions);
    // The last rows see most KV, so their units start first.
    const last = Math.floor((rowCount - 1) / this.#rowsMax) * this.#rowsMax;
    for (let row = last; row >= 0; row -= this.#rowsMax) {
      const rows = { table, firstRow: first + row, rowCount: Math.min(this.#rowsMax, rowCount - row) };
      this.#planRows(rows, this.#rangesOf(rows), wanted, false);
    }
  }

  /** Shared ranges for all of their runs at once, then the other ranges of each run. */
  #planTree({ runs, shared, aloneFrom }: PrefixTree, positions: Int32Array, wanted: number): void {
    const firstRow = this.rowCount;
    for (const run of runs) this.#split(this.#placeRows(run.firstRow, 1, positions));
    for (const { firstRun, runCount, first, end } of shared) {
      for (let at = firstRun; at < firstRun + runCount; at += this.#rowsMax) {
        const rowCount = Math.min(this.#rowsMax, firstRun + runCount - at);
        this.#planRows({ table: runs[at]!.table, firstRow: firstRow + at, rowCount }, { first, end }, wanted, true);
      }
    }
    for (const [i, { table }] of runs.entries()) {
      const rows = { table, firstRow: firstRow + i, rowCount: 1 };
      const ranges = { first: aloneFrom[i]!, end: this.#rangesOf(rows).end };
      if (ranges.end > ranges.first) this.#planRows(rows, ranges, 1, true);
    }
  }

  /** Makes about `wanted` units for these rows. A head of KV alone is read in small pieces, which takes longer. */
  #planRows(rows: RowRun, { first, end }: Ranges, wanted: number, isSplit: boolean): void {
    const queries = rows.rowCount * this.#shape.group;
    const isWide = queries >= kernelSizes.queriesWide;
    const headsMax = isWide ? 1 : Math.max(1, Math.floor(kernelSizes.queriesMax / queries));
    const headUnitsMin = Math.ceil(this.#headCountKv / headsMax);
    const pieces = Math.min(end - first, Math.ceil(wanted / headUnitsMin));
    const headUnits = Math.max(headUnitsMin, Math.floor(wanted / unitsPerThread / pieces));
    const headStep = Math.ceil(this.#headCountKv / headUnits);
    if (pieces > 1 && !isSplit) for (let i = 0; i < rows.rowCount; i++) this.#split(rows.firstRow + i);
    for (let head = 0; head < this.#headCountKv; head += headStep) {
      const headEnd = Math.min(head + headStep, this.#headCountKv);
      for (let piece = 0; piece < pieces; piece++) {
        const from = first + Math.floor((piece * (end - first)) / pieces);
        const to = first + Math.floor(((piece + 1) * (end - first)) / pieces);
        this.#add(rows, head, headEnd, from, to, isSplit || pieces > 1);
      }
    }
  }

  /** The ranges that any of the rows sees. */
  #rangesOf({ firstRow, rowCount }: RowRun): Ranges {
    return {
      first: this.#firstRange(this.positions.words[firstRow]!),
      end: endRange(this.positions.words[firstRow + rowCount - 1]!),
    };
  }

  #firstRange(position: number): number {
    return this.window === 0 ? 0 : Math.floor(Math.max(0, position + 1 - this.window) / kernelSizes.range);
  }

  /** Appends rows of q to `rowOf`; returns the index of the first. */
  #placeRows(firstRow: number, count: number, positions: Int32Array): number {
    const first = this.rowCount;
    for (let i = 0; i < count; i++) {
      this.rowOf.words[first + i] = firstRow + i;
      this.positions.words[first + i] = positions[firstRow + i]!;
    }
    this.rowCount += count;
    return first;
  }

  /** Reserves partial results for a row's ranges. */
  #split(row: number): void {
    const position = this.positions.words[row]!;
    this.partialOf.words[row] = this.#partials;
    this.#partials += endRange(position) - this.#firstRange(position);
  }

  // biome-ignore lint/complexity/useMaxParams: called for each unit of each step, so without an object
  #add(rows: RowRun, headFirst: number, headEnd: number, from: number, to: number, isSplit: boolean): void {
    const at = this.unitCount++ * unitWords;
    this.#reserve(this.unitCount);
    const { words } = this.units;
    words[at + unitField.table] = rows.table;
    words[at + unitField.firstRow] = rows.firstRow;
    words[at + unitField.rowCount] = rows.rowCount;
    words[at + unitField.headFirst] = headFirst;
    words[at + unitField.headEnd] = headEnd;
    words[at + unitField.rangeFirst] = from;
    words[at + unitField.rangeEnd] = to;
    words[at + unitField.isSplit] = isSplit ? 1 : 0;
  }

  #reserve(count: number): void {
    const before = this.units.words;
    this.units.reserve(count * unitWords * 4);
    if (this.units.words !== before) this.units.words.set(before);
  }
}

const endRange = (position: number): number => Math.floor(position / kernelSizes.range) + 1;
