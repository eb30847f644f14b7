/** The native kernel is compared with double precision, with ggml, and with itself in other batches. */
import { afterAll, describe, expect, it } from 'vitest';
import { AttentionInDoubles, type AttentionTestShape, poolBytes } from '../../../test/support/attention-in-doubles.ts';
import { hasCompiler } from '../../../test/support/has-compiler.ts';
import { inLongForm } from '../../../test/support/long-form.ts';
import { needs } from '../../../test/support/needs.ts';
import { quickInShortForm } from '../../../test/support/quick-compiler.ts';
import { expectSameBits } from '../../../test/support/same-bits.ts';
import { Prng } from '../../base/prng.ts';
import { type ComputeDevice, openDevice } from '../../ggml/device.ts';
import { F16, Q8_0 } from '../../ggml/types.ts';
import { KvMemory, rowElements } from '../kv-memory.ts';
import { fillRandomKv, randomFloats } from '../random-values.ts';
import { type AttentionLayer, type AttentionVariant, equalLayers } from './attention.ts';
import { GatherAttention } from './attention-gather.ts';
import { type AttentionKernel, kernelSizes, loadAttentionKernel } from './attention-kernel.ts';
import { NativeAttention } from './attention-native.ts';
import { attendOnce, firstOfHeads, type ProbeSequence, probeBatch } from './probe.ts';
import { findSharedPrefixes } from './shared-prefixes.ts';

const compiler = needs(hasCompiler, 'no C compiler');
const devices = new Map<number, ComputeDevice>();
const deviceOf = (threads: number): ComputeDevice => {
  let device = devices.get(threads);
  if (device === undefined) {
    device = openDevice({ device: 'cpu', threads, exact: true });
    devices.set(threads, device);
  }
  return device;
};
afterAll(() => {
  for (const device of devices.values()) device.close();
});

/** Compiled as users do in each form of the tests. */
const isOfBundledModels = ({ headDim, group, kvType }: AttentionTestShape): boolean =>
  headDim === 64 && group === 2 && kvType === F16;

const kernelOf = (shape: AttentionTestShape): Promise<AttentionKernel> =>
  loadAttentionKernel(deviceOf(1).native, shape, isOfBundledModels(shape) ? {} : quickInShortForm);

const layers = 2;

function randomPool(shape: AttentionTestShape, blocks: number): KvMemory {
  const { headDim, headsKv, blockSize, kvType: type, valueInKey } = shape;
  const layout = { type, layerCount: layers, blockSize, headCountKv: headsKv, headDim, valueInKey };
  const memory = new KvMemory(deviceOf(1), layout, blocks);
  fillRandomKv(poolBytes(deviceOf(1).native, memory), type, blocks);
  return memory;
}

/** Block ids 1, 2, ... in random order, assigned to sequences of these lengths. */
function assignBlocks(lengths: readonly number[], blockSize: number, random: Prng) {
  const counts = lengths.map((length) => Math.ceil(length / blockSize));
  const blocks = Array.from({ length: counts.reduce((a, b) => a + b, 0) }, (_, i) => i + 1);
  for (let i = blocks.length - 1; i > 0; i--) {
    const j = random.between(0, i);
    [blocks[i], blocks[j]] = [blocks[j]!, blocks[i]!];
  }
  const blockCount = blocks.length + 1;
  return { tables: counts.map((count) => Int32Array.from(blocks.splice(0, count))), blockCount };
}

const largestError = (found: Float32Array, wanted: Float64Array): number =>
  wanted.reduce((most, value, i) => Math.max(most, Math.abs(value - found[i]!)), 0);

const rowsOf = (sequences: readonly ProbeSequence[]): number =>
  sequences.flatMap(({ spans }) => spans).reduce((sum, [start, end]) => sum + end - start, 0);

/** A decode, a chunk of a prompt, a short prompt, and spans with holes, in one step. */
function mixedSequences(tables: readonly Int32Array[], lengths: readonly number[], random: Prng): ProbeSequence[] {
  return tables.map((blocks, i) => {
    const length = lengths[i]!;
    if (i % 4 === 0) return { spans: [[length - 1, length]], blocks };
    if (i % 4 === 1) return { spans: [[Math.max(0, length - 1 - random.between(0, 89)), length]], blocks };
    if (i % 4 === 2) return { spans: [[0, length]], blocks };
    const hole = Math.floor(length / 3);
    return {
      spans: [
        [0, Math.min(hole, 7)],
        [hole, Math.min(hole + 13, 2 * hole)],
        [length - 1, length],
      ],
      blocks,
    };
  });
}

/** The default form has each type of KV, latent attention, and groups and head sizes that do and do not fill a vector. */
const shapes: readonly AttentionTestShape[] = [
  { headDim: 64, group: 2, headsKv: 3, blockSize: 16, kvType: F16 },
  { headDim: 64, group: 7, headsKv: 2, blockSize: 16, kvType: Q8_0 },
  { headDim: 80, group: 3, headsKv: 2, blockSize: 64, kvType: F16 },
  // Latent attention: V is in K's row.
  { headDim: 96, group: 6, headsKv: 1, blockSize: 16, kvType: F16, valueInKey: 64 },
  ...inLongForm<readonly AttentionTestShape[]>(
    [
      { headDim: 32, group: 1, headsKv: 4, blockSize: 8, kvType: F16 },
      { headDim: 64, group: 7, headsKv: 2, blockSize: 16, kvType: F16 },
      { headDim: 96, group: 4, headsKv: 1, blockSize: 32, kvType: F16 },
      { headDim: 128, group: 2, headsKv: 2, blockSize: 16, kvType: F16 },
      { headDim: 128, group: 8, headsKv: 1, blockSize: 32, kvType: F16 },
      { headDim: 128, group: 5, headsKv: 1, blockSize: 16, kvType: F16 },
      { headDim: 256, group: 6, headsKv: 1, blockSize: 16, kvType: F16 },
      { headDim: 32, group: 1, headsKv: 4, blockSize: 8, kvType: Q8_0 },
      { headDim: 128, group: 2, headsKv: 2, blockSize: 16, kvType: Q8_0 },
      { headDim: 288, group: 4, headsKv: 1, blockSize: 16, kvType: Q8_0, valueInKey: 256 },
      { headDim: 576, group: 16, headsKv: 1, blockSize: 16, kvType: F16, valueInKey: 512 },
    ],
    [],
  ),
];

describe.each(shapes)('$kvType.name, head size $headDim, group of $group, block size $blockSize', compiler, (shape) => {
  const heads = shape.group * shape.headsKv;
  const variants: [string, AttentionVariant][] = [
    ['no variant', {}],
    ['a window', { window: 37 }],
    ['a window longer than a range', { window: 700 }],
    ['a scale', { scale: 0.3 }],
    ['a soft cap', { softCap: 0.5 }],
    ['sinks', { sinks: randomFloats(heads, 5).map((value) => 3 * value) }],
    ['all variants', { window: 100, scale: 0.2, softCap: 2, sinks: randomFloats(heads, 6) }],
  ];
  /** The default form has each variant for one shape. `all variants` has them together. */
  const ofForm = inLongForm(variants, shape === shapes[0] ? variants : [variants[0]!, variants[6]!]);
  const random = new Prng(shape.headDim * 100 + shape.group);
  // Attention in doubles takes longest with large heads, so their chunks of prompts are short.
  const lengths = shape.headDim < 256 ? [1100, 300, 70, 160, 1, 64, 5, 20] : [1100, 100, 34, 160, 1, 20, 5, 18];
  const { tables, blockCount } = assignBlocks(lengths, shape.blockSize, random);
  const sequences = mixedSequences(tables, lengths, random);
  const values = randomFloats(rowsOf(sequences) * heads * shape.headDim, 7).map((value) => 2 * value);
  const query = { values, headDim: shape.headDim, heads };
  /** All pools of a shape have the same content. */
  let doubles: AttentionInDoubles | undefined;

  it.each(ofForm)('%s: equals attention in double precision', async (_, variant) => {
    const memory = randomPool(shape, blockCount);
    const batch = probeBatch(sequences, memory);
    const native = new NativeAttention(deviceOf(1), memory, await kernelOf(shape), equalLayers(memory.layout, variant));
    const found = attendOnce(deviceOf(1), native, batch, { ...query, layer: 1 });
    doubles ??= new AttentionInDoubles(deviceOf(1).native, memory, shape, sequences, values, 1);
    expect(largestError(found, doubles.expected(variant))).toBeLessThan(2e-6);
    memory.close();
  });

  it('equals ggml over gathered blocks, which sums in F16', async () => {
    const memory = randomPool(shape, blockCount);
    const batch = probeBatch(sequences, memory);
    // Layers with and without a window and sinks in one model; their work is planned separately.
    const each: AttentionLayer[] = [
      { group: 0, place: 0 },
      { group: 0, place: 1, window: 37, sinks: randomFloats(heads, 8).map((value) => 3 * value) },
    ];
    const native = new NativeAttention(deviceOf(1), memory, await kernelOf(shape), each);
    const gather = new GatherAttention(memory, heads, { kvMultiple: 1 }, each);
    for (const layer of [0, 1]) {
      const found = attendOnce(deviceOf(1), native, batch, { ...query, layer });
      const gathered = attendOnce(deviceOf(1), gather, batch, { ...query, layer });
      const values = firstOfHeads(found, shape.headDim, shape.valueInKey);
      expect(values).toHaveLength(gathered.length);
      expect(largestError(values, Float64Array.from(gathered)), `layer ${layer}`).toBeLessThan(5e-3);
    }
    memory.close();
  });

  it.each([variants[0]!, variants[6]!])(
    '%s: the same bits alone, in a batch, in any chunks and with any number of threads',
    async (_, variant) => {
      const memory = randomPool(shape, blockCount);
      const kernel = await kernelOf(shape);
      const width = heads * shape.headDim;
      const run = (threads: number, part: readonly ProbeSequence[], firstRow: number): Float32Array => {
        // The work is split for so many threads, but one thread computes it. Another test below has several threads.
        const device = { ...deviceOf(1), threads };
        const native = new NativeAttention(device, memory, kernel, equalLayers(memory.layout, variant));
        const rows = values.slice(firstRow * width, (firstRow + rowsOf(part)) * width);
        return attendOnce(device, native, probeBatch(part, memory), { ...query, values: rows });
      };
      const whole = run(1, sequences, 0);
      for (const threads of [2, 16]) expectSameBits(run(threads, sequences, 0), whole);
      expectSameBits(run(16, [sequences[0]!], 0), whole.subarray(0, width));
      let row = 0;
      for (const sequence of sequences) {
        const rows = rowsOf([sequence]);
        expectSameBits(run(1, [sequence], row), whole.subarray(row * width, (row + rows) * width));
        const [start, end] = sequence.spans.at(-1)!;
        for (const from of [start, end - 1, end - 2, end - 9, end - 33].filter((at) => at >= start)) {
          const last = [{ ...sequence, spans: [[from, end]] as const }];
          const firstRow = row + rows - (end - from);
          expectSameBits(run(1, last, firstRow), whole.subarray(firstRow * width, (row + rows) * width));
        }
        row += rows;
      }
      memory.close();
    },
  );

  it('sampled rows have the same bits as in a batch of all rows', async () => {
    const memory = randomPool(shape, blockCount);
    const batch = probeBatch(sequences, memory);
    const native = new NativeAttention(deviceOf(1), memory, await kernelOf(shape));
    const whole = attendOnce(deviceOf(1), native, batch, query);
    const width = heads * shape.headDim;
    const rows = Array.from(batch.outputRows, (row) => values.subarray(row * width, (row + 1) * width));
    const sampled = new Float32Array(rows.length * width);
    for (const [i, part] of rows.entries()) sampled.set(part, i * width);
    const found = attendOnce(deviceOf(1), native, batch, { ...query, values: sampled, rows: 'outputs' });
    for (const [i, row] of batch.outputRows.entries()) {
      expectSameBits(found.subarray(i * width, (i + 1) * width), whole.subarray(row * width, (row + 1) * width));
    }
    memory.close();
  });
});

describe('requests that share a prefix', compiler, () => {
  /** Block tables whose first blocks are shared: `[shared, own]` blocks each. */
  function tablesOf(parts: readonly (readonly [common: number, own: number])[], random: Prng) {
    const common = Math.max(...parts.map(([count]) => count));
    const blocks = assignBlocks([common * 16, ...parts.map(([, own]) => own * 16)], 16, random);
    const [first, ...rest] = blocks.tables;
    const tables = parts.map(([count], i) => Int32Array.from([...first!.subarray(0, count), ...rest[i]!]));
    return { tables, blockCount: blocks.blockCount };
  }

  it.each([
    { headDim: 64, group: 1, headsKv: 2, blockSize: 16, kvType: F16 },
    { headDim: 128, group: 2, headsKv: 2, blockSize: 16, kvType: Q8_0 },
    { headDim: 64, group: 7, headsKv: 1, blockSize: 16, kvType: F16 },
  ])('get the same bits as each alone: $kvType.name, group of $group', async (shape) => {
    const parts = [
      [70, 3],
      [70, 30],
      [0, 90],
      [40, 60],
      [70, 1],
      [64, 0],
      [40, 2],
      [70, 20],
      [3, 80],
      [70, 7],
      ...Array.from({ length: 14 }, (_, i) => [70, 1 + i] as const),
    ] as const;
    const { tables, blockCount } = tablesOf(parts, new Prng(11));
    const memory = randomPool(shape, blockCount);
    const sequences: ProbeSequence[] = tables.map((blocks, i) => {
      const end = i === 5 ? blocks.length * 16 : blocks.length * 16 - (i % 16);
      // One of them is a chunk of a prompt.
      return { spans: [[i === 3 ? end - 40 : end - 1, end]], blocks };
    });
    const heads = shape.group * shape.headsKv;
    const width = heads * shape.headDim;
    const values = randomFloats(rowsOf(sequences) * width, 8);
    const kernel = await kernelOf(shape);
    for (const threads of [1, 3, 16]) {
      const device = { ...deviceOf(1), threads };
      const native = new NativeAttention(device, memory, kernel);
      const query = { values, headDim: shape.headDim, heads };
      const together = attendOnce(device, native, probeBatch(sequences, memory), query);
      let row = 0;
      for (const sequence of sequences) {
        const rows = rowsOf([sequence]);
        const own = values.slice(row * width, (row + rows) * width);
        const alone = attendOnce(device, native, probeBatch([sequence], memory), { ...query, values: own });
        expectSameBits(alone, together.subarray(row * width, (row + rows) * width));
        row += rows;
      }
    }
    memory.close();
  });

  it('are found in any order and form a tree that branches where their blocks differ', () => {
    const { tables } = tablesOf(
      [
        [64, 4],
        [64, 9],
        [16, 80],
        [64, 1],
        [0, 70],
        [16, 64],
      ],
      new Prng(5),
    );
    const words = Int32Array.from(tables.flatMap((table) => [...table]));
    let at = 0;
    const runs = tables.map((table, row) => {
      const run = { table: at, firstRow: row, rowCount: 1 };
      at += table.length;
      return run;
    });
    const positions = Int32Array.from(tables, ({ length }) => length * 16 - 1);
    const { trees, alone } = findSharedPrefixes(runs, positions, words, 16);
    expect(kernelSizes.range).toBe(256);
    expect(alone.map(({ firstRow }) => firstRow)).toEqual([4]);
    expect(trees).toHaveLength(1);
    const [tree] = trees;
    expect(tree!.runs.map(({ firstRow }) => firstRow)).toEqual([0, 1, 3, 2, 5]);
    expect(tree!.shared).toEqual([
      { firstRun: 0, runCount: 5, first: 0, end: 1 },
      { firstRun: 0, runCount: 3, first: 1, end: 4 },
    ]);
    expect(tree!.aloneFrom).toEqual([4, 4, 4, 1, 1]);
  });
});

describe('threads that share a step', compiler, () => {
  it('compute the same bits as one thread', async () => {
    const shape = { headDim: 64, group: 2, headsKv: 3, blockSize: 16, kvType: F16 };
    const { tables, blockCount } = assignBlocks([1500, 40], shape.blockSize, new Prng(9));
    const memory = randomPool(shape, blockCount);
    const batch = probeBatch(
      [
        { spans: [[1499, 1500]], blocks: tables[0]! },
        { spans: [[0, 40]], blocks: tables[1]! },
      ],
      memory,
    );
    const values = randomFloats(41 * 6 * 64, 4);
    const run = async (threads: number): Promise<Float32Array> => {
      const native = new NativeAttention(deviceOf(threads), memory, await kernelOf(shape));
      return attendOnce(deviceOf(threads), native, batch, { values, headDim: 64, heads: 6 });
    };
    const alone = await run(1);
    for (let time = 0; time < 3; time++) expectSameBits(await run(2), alone);
    memory.close();
  });
});

describe('KV that a row does not see', compiler, () => {
  it('does not change the bits of the row, even if it is NaN', async () => {
    const shape = { headDim: 64, group: 2, headsKv: 2, blockSize: 16, kvType: F16 };
    const { tables, blockCount } = assignBlocks([600, 90], shape.blockSize, new Prng(3));
    const memory = randomPool(shape, blockCount);
    const native = new NativeAttention(deviceOf(1), memory, await kernelOf(shape));
    const spans = [[530, 570]] as const;
    const batch = probeBatch([{ spans, blocks: tables[0]! }], memory);
    const values = randomFloats(40 * 4 * 64, 1);
    const before = attendOnce(deviceOf(1), native, batch, { values, headDim: 64, heads: 4 });
    const notANumber = 0x7e00;
    const f16s = new Uint16Array(deviceOf(1).native.memoryAt(memory.baseAddress, blockCount * memory.blockBytes));
    const width = rowElements(memory.layout);
    const corrupt = (block: number, from: number) => {
      for (let row = 0; row < memory.rowsPerBlock; row++) {
        if (row % shape.blockSize < from) continue;
        const at = (memory.slotOf(block as never, 0) + row) * width;
        f16s.fill(notANumber, at, at + width);
      }
    };
    corrupt(0, 0);
    for (const block of tables[1]!) corrupt(block, 0);
    corrupt(tables[0]![35]!, 570 % 16);
    for (const block of tables[0]!.slice(36)) corrupt(block, 0);
    expectSameBits(attendOnce(deviceOf(1), native, batch, { values, headDim: 64, heads: 4 }), before);
    // A NaN in the KV of the step's last row changes only this row.
    corrupt(tables[0]![35]!, 569 % 16);
    const after = attendOnce(deviceOf(1), native, batch, { values, headDim: 64, heads: 4 });
    expectSameBits(after.subarray(0, 39 * 256), before.subarray(0, 39 * 256));
    expect(after.slice(39 * 256)).not.toEqual(before.slice(39 * 256));
    memory.close();
  });
});
