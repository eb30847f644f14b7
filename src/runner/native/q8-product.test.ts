/** Products with Q8_0 matrices: our kernel against arithmetic in doubles, against ggml, and against itself in other company. */
import { afterAll, describe, expect, it } from 'vitest';
import { allocateTensors, openDevice } from '../../ggml/device.ts';
import type { TensorPtr } from '../../ggml/ffi.ts';
import { GraphBuilder } from '../../ggml/graph.ts';
import { F32, I32, Q8_0, rowBytes } from '../../ggml/types.ts';
import { Products } from '../products.ts';
import type { PlacedMatrix } from '../weights.ts';
import { openQ8Product, type Q8Product } from './q8-product.ts';
import { randomFloats } from './self-test.ts';

const device = openDevice({ device: 'cpu', threads: 1, exact: false });
const { native } = device;
afterAll(() => device.close());

/** A kernel of its own for each matrix: it knows matrices by where they lie, and ours are closed and come again. */
const fresh = async (): Promise<Q8Product> => (await openQ8Product(device))!;
const isThere = (await openQ8Product(device)) !== undefined;

interface Matrix {
  readonly placed: PlacedMatrix;
  /** What the quantized weights are, `[outputs][inputs]`. */
  readonly values: Float32Array;
  close(): void;
}

function randomMatrix(inputs: number, outputs: number, buffers = device.cpuBuffers): Matrix {
  const context = native.ggml_init({ mem_size: 4096, mem_buffer: 0, no_alloc: true });
  const tensor = native.ggml_new_tensor_2d(context, Q8_0.id, inputs, outputs);
  const buffer = allocateTensors(device, context, buffers, 'a test', 0);
  const packed = new Uint8Array(rowBytes(Q8_0, inputs) * outputs);
  native.ggml_quantize_chunk(Q8_0.id, randomFloats(inputs * outputs, 3), packed, 0, outputs, inputs, null);
  native.ggml_backend_tensor_set(tensor, packed, 0, packed.length);
  const scales = new Float32Array(packed.length / 34);
  const halves = Uint16Array.from(scales, (_, i) => packed[i * 34]! | (packed[i * 34 + 1]! << 8));
  native.ggml_fp16_to_fp32_row(halves, scales, BigInt(scales.length) as never);
  const bytes = new Int8Array(packed.buffer);
  const values = Float32Array.from(
    { length: inputs * outputs },
    (_, i) => scales[i >> 5]! * bytes[(i >> 5) * 34 + 2 + (i & 31)]!,
  );
  return {
    placed: { tensor, source: { type: Q8_0, ne: [inputs, outputs] } as never, buffers },
    values,
    close: () => {
      native.ggml_backend_buffer_free(buffer);
      native.ggml_free(context);
    },
  };
}

function compute(x: Float32Array | Int32Array, width: number, build: (graph: GraphBuilder, x: TensorPtr) => TensorPtr) {
  const graph = new GraphBuilder(device);
  graph.begin(8);
  const count = x.length / width;
  const input = graph.input(
    x instanceof Int32Array ? I32 : F32,
    x instanceof Int32Array ? x.length : width,
    x instanceof Int32Array ? 1 : count,
  );
  const result = build(graph, input);
  graph.output(result);
  graph.allocate();
  graph.write(input, x as Float32Array);
  graph.computeNow();
  const values = new Float32Array(graph.dataOf(result, native.ggml_nbytes(result))).slice();
  graph.close();
  return values;
}

const multiply = (kernel: Q8Product | undefined, { placed }: Matrix, rows: Float32Array): Float32Array =>
  compute(rows, placed.source.ne[0], (graph, x) => new Products(graph, { q8: kernel }).multiply(placed.tensor, x));

const bitsOf = (values: Float32Array): Uint32Array => new Uint32Array(values.buffer, values.byteOffset, values.length);

describe.runIf(isThere)('products with Q8_0', () => {
  it.each([
    [32, 16],
    [96, 48],
    [1024, 80],
    [3072, 1008],
  ])('%i inputs, %i outputs: as in doubles, and as ggml', async (inputs, outputs) => {
    const matrix = randomMatrix(inputs, outputs);
    const rows = randomFloats(inputs * 37, 9);
    const theirs = multiply(undefined, matrix, rows);
    const q8 = await fresh();
    await q8.take(matrix.placed);
    const ours = multiply(q8, matrix, rows);
    // Rounding the rows to 8 bits is most of the error, ours and ggml's.
    const typical = Math.sqrt(inputs) / 3;
    let worst = 0;
    for (let row = 0; row < 37; row++) {
      for (let output = 0; output < outputs; output += 7) {
        let sum = 0;
        for (let i = 0; i < inputs; i++) sum += rows[row * inputs + i]! * matrix.values[output * inputs + i]!;
        worst = Math.max(worst, Math.abs(sum - ours[row * outputs + output]!));
      }
    }
    expect(worst / typical).toBeLessThan(0.02);
    for (const [i, value] of ours.entries()) expect(Math.abs(value - theirs[i]!) / typical).toBeLessThan(0.01);
    matrix.close();
  });

  it('give a row the same bits in any batch', async () => {
    const [inputs, outputs] = [512, 64];
    const matrix = randomMatrix(inputs, outputs);
    const q8 = await fresh();
    await q8.take(matrix.placed);
    const rows = randomFloats(inputs * 600, 4);
    const together = bitsOf(multiply(q8, matrix, rows));
    for (const count of [1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 48, 100, 599]) {
      for (const first of [0, 600 - count]) {
        const part = multiply(q8, matrix, rows.slice(first * inputs, (first + count) * inputs));
        expect(bitsOf(part)).toEqual(together.slice(first * outputs, (first + count) * outputs));
      }
    }
    matrix.close();
  });

  it('leave a row that is no number one, and its neighbours alone', async () => {
    const [inputs, outputs] = [256, 32];
    const matrix = randomMatrix(inputs, outputs);
    const q8 = await fresh();
    await q8.take(matrix.placed);
    const rows = randomFloats(inputs * 6, 5);
    const before = bitsOf(multiply(q8, matrix, rows));
    rows[inputs + 100] = Number.NaN;
    rows[3 * inputs + 7] = Number.POSITIVE_INFINITY;
    rows[4 * inputs + 255] = Number.NEGATIVE_INFINITY;
    const after = multiply(q8, matrix, rows);
    for (const row of [1, 3, 4]) {
      expect(after.subarray(row * outputs, (row + 1) * outputs).every(Number.isNaN)).toBe(true);
      const alone = multiply(q8, matrix, rows.slice(row * inputs, (row + 1) * inputs));
      expect(alone.every(Number.isNaN)).toBe(true);
    }
    for (const row of [0, 2, 5]) {
      expect(bitsOf(after).slice(row * outputs, (row + 1) * outputs)).toEqual(
        before.slice(row * outputs, (row + 1) * outputs),
      );
    }
    matrix.close();
  });

  it('give the matrix’s own rows as ggml gives them', async () => {
    const [inputs, outputs] = [128, 96];
    const matrix = randomMatrix(inputs, outputs);
    const wanted = Int32Array.from([0, 95, 16, 15, 17, 40, 40, 3]);
    const take = (kernel: Q8Product | undefined): Uint32Array =>
      bitsOf(
        compute(wanted, 1, (graph, x) =>
          new Products(graph, { q8: kernel }).takeRows(matrix.placed.tensor, x, wanted.length),
        ),
      );
    const theirs = take(undefined);
    const q8 = await fresh();
    await q8.take(matrix.placed);
    expect(take(q8)).toEqual(theirs);
    matrix.close();
  });

  it('are not for other shapes, types or places', async () => {
    const q8 = await fresh();
    const placed = (inputs: number, outputs: number, name = 'Q8_0', buffers = device.cpuBuffers): PlacedMatrix =>
      ({ tensor: 0, source: { type: { name }, ne: [inputs, outputs] }, buffers }) as never;
    expect(q8.fits(placed(64, 32))).toBe(true);
    expect(q8.fits(placed(48, 32))).toBe(false);
    expect(q8.fits(placed(64, 24))).toBe(false);
    expect(q8.fits(placed(64, 32, 'Q4_0'))).toBe(false);
    if (device.repackedBuffers !== undefined)
      expect(q8.fits(placed(64, 32, 'Q8_0', device.repackedBuffers))).toBe(false);
  });
});
