/** The kernels are compared with ggml's operations, and with themselves in other batches. */
import { afterAll, describe, expect, it } from 'vitest';
import { constantTensor } from '../../../test/support/constant-tensors.ts';
import { hasCompiler } from '../../../test/support/has-compiler.ts';
import { needs } from '../../../test/support/needs.ts';
import { expectSameBits } from '../../../test/support/same-bits.ts';
import { type ComputeDevice, openDevice } from '../../ggml/device.ts';
import { nullPtr, type TensorPtr } from '../../ggml/ffi.ts';
import { GraphBuilder } from '../../ggml/graph.ts';
import type { GraphKernels } from '../../ggml/graph-kernels.ts';
import { F32, I32 } from '../../ggml/types.ts';
import { randomFloats } from '../random-values.ts';
import { openRowOperations } from './row-operations.ts';

const compiler = needs(hasCompiler, 'no C compiler');
const device = openDevice({ device: 'cpu', threads: 1, exact: false });
const threeThreads = openDevice({ device: 'cpu', threads: 3, exact: false });
afterAll(() => {
  device.close();
  threeThreads.close();
});
const kernels = hasCompiler ? await openRowOperations(device) : undefined;

type Operation = (graph: GraphBuilder, x: TensorPtr) => TensorPtr;

/** The result for rows of `width` floats. */
function compute(
  operation: Operation,
  rows: Float32Array,
  width: number,
  used?: GraphKernels,
  on = device,
): Float32Array {
  const graph = new GraphBuilder(on as ComputeDevice, used);
  try {
    graph.begin(64);
    const input = graph.input(F32, width, rows.length / width);
    const result = operation(graph, input);
    graph.output(result);
    graph.allocate();
    graph.write(input, rows);
    graph.computeNow();
    return graph.dataOf(result, Float32Array).slice();
  } finally {
    graph.close();
  }
}

const width = 96;
const matrix = (outputs: number): TensorPtr => constantTensor(device, randomFloats(width * outputs, 3), width, outputs);
const router = matrix(40);
const gate = matrix(1);
const operations: [string, Operation][] = [
  ['silu', (graph, x) => graph.activate('silu', x)],
  ['swiglu', (graph, x) => graph.swiglu(x, graph.scale(x, 0.5))],
  ['sigmoid', (graph, x) => graph.activate('sigmoid', x)],
  ['soft cap', (graph, x) => graph.softCap(x, 5)],
  ['GeGLU', (graph, x) => graph.geglu(x, graph.scale(x, 0.5))],
  ['GELU', (graph, x) => graph.activate('gelu', x)],
  ['tanh', (graph, x) => graph.activate('tanh', x)],
  ['clamped SwiGLU', (graph, x) => graph.clampedSwiglu(x, graph.scale(x, 0.5), 1.702, 4)],
  ['softmax', (graph, x) => graph.softMax(x)],
  [
    'softmax of three',
    (graph, x) => graph.softMax(graph.reshape2d(graph.contiguous(x), 3, (graph.rowCountOf(x) * width) / 3)),
  ],
  ['a router', (graph, x) => graph.multiplySingleRows(router, x)],
  ['a gate', (graph, x) => graph.multiplySingleRows(gate, x)],
];

describe.each(operations)('%s', compiler, (_, operation) => {
  const count = 7;
  const rows = randomFloats(count * width, 4).map((x) => 10 * x);

  it('nearly equals the operation of ggml', () => {
    const [ours, ggml] = [compute(operation, rows, width, kernels), compute(operation, rows, width)];
    expect(ours.length).toBe(ggml.length);
    const largest = Math.max(...ggml.map(Math.abs));
    for (const [i, value] of ours.entries()) expect(Math.abs(value - ggml[i]!)).toBeLessThan(1e-6 * largest);
  });

  it('gives a row the same bits alone, in a batch and with three threads', () => {
    const together = compute(operation, rows, width, kernels);
    expectSameBits(compute(operation, rows, width, kernels, threeThreads), together);
    const size = together.length / count;
    for (let row = 0; row < count; row++) {
      const alone = compute(operation, rows.slice(row * width, (row + 1) * width), width, kernels);
      expectSameBits(alone, together.slice(row * size, (row + 1) * size));
    }
  });

  it.each([Number.NaN, Number.POSITIVE_INFINITY])('a row with %s changes no other row', (value) => {
    const wanted = compute(operation, rows, width, kernels);
    const spoiled = rows.slice();
    spoiled.fill(value, 0, width);
    const found = compute(operation, spoiled, width, kernels);
    const size = found.length / count;
    expectSameBits(found.slice(size), wanted.slice(size));
  });
});

it('softmax of a row with NaN or infinity is NaN', compiler, () => {
  for (const value of [Number.NaN, Number.POSITIVE_INFINITY]) {
    const row = randomFloats(width, 5);
    row[17] = value;
    expect(compute((graph, x) => graph.softMax(x), row, width, kernels).every(Number.isNaN)).toBe(true);
  }
});

describe('low-rank products', compiler, () => {
  const [inputs, rank, all] = [70, 48, 23];
  const x = Float32Array.from(randomFloats(all * inputs, 6));
  const down = randomFloats(rank * inputs, 7);
  const downTensor = constantTensor(device, down, rank, inputs);

  /** `sums` plus up(down(x)) in some rows. */
  function add(
    up: TensorPtr,
    outputs: number,
    rows: readonly number[],
    { sums = new Float32Array(all * outputs), on = device, given = x },
  ) {
    const { multiplyRows, addToRows } = kernels!.lowRank;
    const graph = new GraphBuilder(on as ComputeDevice, kernels);
    try {
      graph.begin(64);
      const [input, old, chosen] = [
        graph.input(F32, inputs, all),
        graph.input(F32, outputs, all),
        graph.input(I32, rows.length),
      ];
      const result = graph.scale(old, 1);
      const low = graph.custom([downTensor, input, chosen], rank, rows.length, multiplyRows, nullPtr(), kernels!);
      graph.expand(graph.custom([up, low, result, chosen], 1, 1, addToRows, nullPtr(), kernels!));
      graph.output(result);
      graph.allocate();
      graph.write(input, given);
      graph.write(old, sums);
      graph.write(chosen, Int32Array.from(rows));
      graph.computeNow();
      return graph.dataOf(result, Float32Array).slice();
    } finally {
      graph.close();
    }
  }

  it.each([1, 16, 17, 40, 63, 96])(
    'with %i outputs are right, and the same bits alone, with others and with three threads',
    (outputs) => {
      const up = randomFloats(rank * outputs, 8);
      const upTensor = constantTensor(device, up, outputs, rank);
      const sums = Float32Array.from(randomFloats(all * outputs, 9));
      const rows = [20, 3, 4, 5, 6, 9, 22, 0, 13, 12, 17, 1, 2];
      const found = add(upTensor, outputs, rows, { sums });
      for (let row = 0; row < all; row++) {
        for (let o = 0; o < outputs; o++) {
          let expected = sums[row * outputs + o]!;
          for (let r = 0; rows.includes(row) && r < rank; r++) {
            let low = 0;
            for (let i = 0; i < inputs; i++) low += x[row * inputs + i]! * down[i * rank + r]!;
            expected += low * up[r * outputs + o]!;
          }
          expect(found[row * outputs + o]).toBeCloseTo(expected, 4);
        }
      }
      expectSameBits(add(upTensor, outputs, rows, { sums, on: threeThreads }), found);
      const spoiled = x.slice().fill(Number.NaN, 20 * inputs, 21 * inputs);
      const others = add(upTensor, outputs, rows, { sums, given: spoiled });
      for (const row of rows) {
        const ofRow = (values: Float32Array): Float32Array => values.subarray(row * outputs, (row + 1) * outputs);
        expectSameBits(ofRow(add(upTensor, outputs, [row], { sums })), ofRow(found));
        if (row !== 20) expectSameBits(ofRow(others), ofRow(found));
      }
    },
  );
});
