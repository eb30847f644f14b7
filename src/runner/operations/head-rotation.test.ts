/** The kernels are compared with ggml's norm and RoPE, and with themselves in other batches. */
import { afterAll, describe, expect, it } from 'vitest';
import { constantTensor } from '../../../test/support/constant-tensors.ts';
import { hasCompiler } from '../../../test/support/has-compiler.ts';
import { needs } from '../../../test/support/needs.ts';
import { expectSameBits } from '../../../test/support/same-bits.ts';
import { assertDefined } from '../../base/assert.ts';
import { openDevice } from '../../ggml/device.ts';
import type { TensorPtr } from '../../ggml/ffi.ts';
import { GraphBuilder } from '../../ggml/graph.ts';
import { hasDivisors, type RopeConfig } from '../../ggml/rope-config.ts';
import { F32, I32 } from '../../ggml/types.ts';
import { randomFloats } from '../random-values.ts';
import { openHeadRotation } from './head-rotation.ts';

const compiler = needs(hasCompiler, 'no C compiler');
const device = openDevice({ device: 'cpu', threads: 1, exact: true });
const threeThreads = openDevice({ device: 'cpu', threads: 3, exact: true });
afterAll(() => {
  device.close();
  threeThreads.close();
});

const plain: RopeConfig = {
  mode: 'neox',
  scaling: 'none',
  dimension: 128,
  freqBase: 1e6,
  freqScale: 1,
  extFactor: 0,
  attnFactor: 1,
  betaFast: 32,
  betaSlow: 1,
  originalContextLength: 32768,
};
const yarn = { ...plain, scaling: 'yarn', freqScale: 0.25, extFactor: 1 } as const;
const epsilon = 1e-6;

interface Shape {
  readonly headDim: number;
  readonly rope: RopeConfig;
  readonly hasQkNorm: boolean;
  /** Other elements between two heads. */
  readonly gap?: number;
}

const divisors = Array.from(randomFloats(64, 9), (x) => Math.fround(2 + x));
const shapes: [string, Shape][] = [
  ['halves, with norms', { headDim: 128, rope: plain, hasQkNorm: true }],
  ['halves, without norms', { headDim: 128, rope: plain, hasQkNorm: false }],
  ['adjacent pairs, with norms', { headDim: 64, rope: { ...plain, mode: 'normal', dimension: 64 }, hasQkNorm: true }],
  [
    'adjacent pairs, without norms',
    { headDim: 96, rope: { ...plain, mode: 'normal', dimension: 96 }, hasQkNorm: false },
  ],
  ['a part of each head', { headDim: 256, rope: { ...plain, dimension: 64 }, hasQkNorm: true }],
  ['heads of 80, whose pairs fill no vectors', { headDim: 80, rope: { ...plain, dimension: 80 }, hasQkNorm: true }],
  ['few pairs', { headDim: 16, rope: { ...plain, mode: 'normal', dimension: 6 }, hasQkNorm: false }],
  ['YaRN', { headDim: 128, rope: yarn, hasQkNorm: true }],
  [
    'factors of frequencies',
    { headDim: 128, rope: { ...plain, mode: 'normal', freqFactors: 'rope_freqs.weight' }, hasQkNorm: false },
  ],
  [
    'computed divisors',
    { headDim: 64, rope: { ...plain, dimension: 64, divisors: divisors.slice(0, 32) }, hasQkNorm: false },
  ],
  ['heads with gates between them', { headDim: 128, rope: plain, hasQkNorm: true, gap: 128 }],
];

const factors = constantTensor(device, Float32Array.from(divisors), 64);
const heads = 5;

/** Rotates heads of rows at these positions, by the kernel and by ggml. */
async function rotate(shape: Shape, values: Float32Array, places: Int32Array, on = device) {
  const { headDim, rope, hasQkNorm, gap = 0 } = shape;
  const rotation = assertDefined(await openHeadRotation(on, { headDim, rope, rmsEpsilon: epsilon }), 'a kernel');
  const graph = new GraphBuilder(on);
  try {
    graph.begin(64);
    const rows = places.length;
    const input = graph.input(F32, (headDim + gap) * heads, rows);
    const weights = graph.input(F32, headDim);
    const positions = graph.input(I32, rows);
    const stride = (headDim + gap) * F32.typeSize;
    const x = graph.view3d(input, [headDim, heads, rows], [stride, heads * stride], 0);
    const freqs: TensorPtr | undefined = hasDivisors(rope) ? factors : undefined;
    const rotations = rotation.of(graph, freqs);
    const norm = hasQkNorm ? weights : undefined;
    // Twice, because layers share a table.
    const ours = [0, 1].map(() => rotations.rotate({ x, positions, norm, rope }));
    const ggml = graph.rope(hasQkNorm ? graph.rmsNorm(x, weights, epsilon) : x, positions, freqs, rope);
    for (const result of [...ours, ggml]) graph.output(result);
    graph.allocate();
    graph.write(input, values);
    graph.write(weights, randomFloats(headDim, 2));
    graph.write(positions, places);
    graph.computeNow();
    const [first, second, wanted] = [...ours, ggml].map((tensor) => graph.dataOf(tensor, Float32Array).slice());
    expectSameBits(second!, first!);
    return { ours: first!, ggml: wanted! };
  } finally {
    graph.close();
  }
}

describe.each(shapes)('%s', compiler, (_, shape) => {
  const places = Int32Array.of(0, 1, 2, 100, 4095, 4096, 131_071);
  const width = (shape.headDim + (shape.gap ?? 0)) * heads;
  const values = randomFloats(width * places.length, 4).map((x) => 10 * x);

  it('nearly equals ggml', async () => {
    const { ours, ggml } = await rotate(shape, values, places);
    const largest = Math.max(...ggml.map(Math.abs));
    for (const [i, value] of ours.entries()) expect(Math.abs(value - ggml[i]!)).toBeLessThan(1e-6 * largest);
  });

  it('has the same bits with three threads', async () => {
    expectSameBits(
      (await rotate(shape, values, places, threeThreads)).ours,
      (await rotate(shape, values, places)).ours,
    );
  });

  it('gives a row the same bits alone and in a batch', async () => {
    const { ours } = await rotate(shape, values, places);
    const size = shape.headDim * heads;
    for (const [row, place] of places.entries()) {
      const alone = await rotate(shape, values.slice(row * width, (row + 1) * width), Int32Array.of(place));
      expectSameBits(alone.ours, ours.slice(row * size, (row + 1) * size));
    }
  });
});

const model = { headDim: 128, rope: plain, rmsEpsilon: epsilon };

it('leaves models without RoPE, and very large heads, to ggml', compiler, async () => {
  expect(await openHeadRotation(device, { ...model, rope: { ...plain, mode: 'none' } })).toBeUndefined();
  expect(await openHeadRotation(device, { ...model, headDim: 1024 })).toBeUndefined();
});
