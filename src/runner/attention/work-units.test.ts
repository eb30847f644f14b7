import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { loadNative } from '../../ggml/ffi.ts';
import { F16 } from '../../ggml/types.ts';
import { kernelSizes } from './attention-kernel.ts';
import { type RowRun, WorkUnits } from './work-units.ts';

interface Unit {
  readonly rows: readonly number[];
  readonly heads: readonly number[];
  readonly ranges: readonly number[];
}

const integers = (first: number, end: number): number[] => Array.from({ length: end - first }, (_, i) => first + i);

interface Step {
  readonly threads: number;
  readonly headCountKv: number;
  readonly group: number;
  readonly window: number;
  /** The positions of each sequence's rows: the last `rows` tokens of `tokens`. */
  readonly sequences: readonly { readonly tokens: number; readonly rows: number; readonly sharesBlocks: boolean }[];
}

const blockSize = 16;
/** Of `struct unit` in attention-records.h. */
const unitWords = 8;

/** The units of a step, with the rows as they are in q, and the position of each of these. */
function planned({ threads, headCountKv, group, window, sequences }: Step): { units: Unit[]; positions: Int32Array } {
  const shape = { headDim: 128, group, blockSize, kvType: F16 };
  const work = new WorkUnits(loadNative(), shape, { headCountKv, threads, window });
  const runs: RowRun[] = [];
  const positions: number[] = [];
  const tables: number[] = [];
  for (const [i, { tokens, rows, sharesBlocks }] of sequences.entries()) {
    runs.push({ table: tables.length, firstRow: positions.length, rowCount: rows });
    positions.push(...integers(tokens - rows, tokens));
    const shared = sharesBlocks ? 0 : 10_000 * (i + 1);
    for (let block = 0; block * blockSize < tokens; block++) tables.push(shared + block);
  }
  work.plan(runs, Int32Array.from(positions), Int32Array.from(tables));
  const units = integers(0, work.unitCount).map((index) => {
    const field = (at: number): number => work.units.words[index * unitWords + at]!;
    return {
      rows: integers(field(1), field(1) + field(2)).map((row) => work.rowOf.words[row]!),
      heads: integers(field(3), field(4)),
      ranges: integers(field(5), field(6)),
    };
  });
  return { units, positions: Int32Array.from(positions) };
}

const tokensMax = 6000;

const anySequence = fc.integer({ min: 1, max: tokensMax }).chain((tokens) =>
  fc.record({
    tokens: fc.constant(tokens),
    rows: fc.oneof(fc.constant(1), fc.integer({ min: 1, max: Math.min(tokens, 200) })),
    sharesBlocks: fc.boolean(),
  }),
);
const anyStep: fc.Arbitrary<Step> = fc.record({
  threads: fc.integer({ min: 1, max: 32 }),
  headCountKv: fc.integer({ min: 1, max: 16 }),
  group: fc.integer({ min: 1, max: 8 }),
  window: fc.oneof(fc.constant(0), fc.integer({ min: 1, max: 2000 })),
  sequences: fc.array(anySequence, { minLength: 1, maxLength: 5 }),
});

const decodeAfter = (tokens: number, threads: number): Unit[] =>
  planned({
    threads,
    headCountKv: 8,
    group: 2,
    window: 0,
    sequences: [{ tokens: tokens + 1, rows: 1, sharesBlocks: false }],
  }).units;

describe('work units', () => {
  it('compute every range that a row sees, in every head, exactly once', () => {
    fc.assert(
      fc.property(anyStep, (step) => {
        const { units, positions } = planned(step);
        const rangesMax = Math.ceil(tokensMax / kernelSizes.range);
        const counts = new Uint8Array(positions.length * step.headCountKv * rangesMax);
        const cell = (row: number, head: number, range: number): number =>
          (row * step.headCountKv + head) * rangesMax + range;
        for (const { rows, heads, ranges } of units) {
          for (const row of rows)
            for (const head of heads) for (const range of ranges) counts[cell(row, head, range)]!++;
        }
        const wrong: unknown[] = [];
        for (const [row, position] of positions.entries()) {
          const first = step.window === 0 ? 0 : Math.max(0, position + 1 - step.window);
          for (let range = Math.floor(first / kernelSizes.range); range <= position / kernelSizes.range; range++) {
            for (let head = 0; head < step.headCountKv; head++) {
              const count = counts[cell(row, head, range)]!;
              if (count !== 1) wrong.push({ row, head, range, count });
            }
          }
        }
        expect(wrong).toEqual([]);
      }),
    );
  });

  it('read all heads of a token together if there are as many ranges as threads', () => {
    for (const threads of [2, 4, 8]) {
      for (const unit of decodeAfter(threads * kernelSizes.range, threads)) expect(unit.heads).toHaveLength(8);
    }
  });

  it('split heads of a short context, so that no thread is idle', () => {
    expect(decodeAfter(10, 2).map(({ heads }) => heads.length)).toEqual([4, 4]);
    expect(decodeAfter(300, 8).map(({ heads }) => heads.length)).toEqual([2, 2, 2, 2, 2, 2, 2, 2]);
    expect(decodeAfter(10, 1)).toHaveLength(1);
  });
});
