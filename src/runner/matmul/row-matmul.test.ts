/** Matmuls of single rows with repacked Q4_K: our kernel has the bits of ggml's kernel for four rows. */
import { afterAll, describe, expect, it } from 'vitest';
import { needs } from '../../../test/support/needs.ts';
import { allocateTensors, openDevice } from '../../ggml/device.ts';
import type { TensorPtr } from '../../ggml/ffi.ts';
import { GraphBuilder } from '../../ggml/graph.ts';
import { F32 } from '../../ggml/types.ts';
import { randomFloats } from '../random-values.ts';
import type { PlacedMatrix } from '../weight-store.ts';
import { openRowMatmul } from './row-matmul.ts';

const q4k = 12;
const device = openDevice({ device: 'cpu', threads: 1, exact: false });
const { native } = device;
afterAll(() => device.close());

/** Placed as by `loadWeights`. */
const placed = (typeName: string, inputs: number, outputs: number, buffers = device.repackedBuffers): PlacedMatrix =>
  ({ source: { type: { name: typeName }, ne: [inputs, outputs] }, buffers }) as never;
const rowMatmul = await openRowMatmul(device, [placed('Q4_K', 256, 8)]);

describe(
  'a single row times repacked Q4_K has the bits of a row in a batch',
  needs(rowMatmul !== undefined, 'no C compiler, or a CPU for which ggml repacks Q4_K in another way'),
  () => {
    const shapes: [inputs: number, outputs: number][] = [
      [256, 8],
      [512, 72],
      [1024, 264],
      [3072, 1000],
    ];
    it.each(shapes)('%i inputs, %i outputs', (inputs, outputs) => {
      const context = native.ggml_init({ mem_size: 4096, mem_buffer: 0, no_alloc: true });
      const matrix = native.ggml_new_tensor_2d(context, q4k, inputs, outputs);
      const buffer = allocateTensors(device, context, device.repackedBuffers!, { purpose: 'a test', bytes: 0 });
      const packed = new Uint8Array(((inputs * outputs) / 256) * 144);
      native.ggml_quantize_chunk(q4k, randomFloats(inputs * outputs, 5), packed, 0, outputs, inputs, null);
      native.ggml_backend_tensor_set(matrix, packed, 0, packed.length);
      rowMatmul!.add(matrix, inputs, outputs);

      const rows = randomFloats(inputs * 4, inputs);
      for (let i = 0; i < rows.length; i += 97) rows[i]! *= 30;
      // A block of zeros, blocks with the largest magnitude of either sign, and a block of tiny values.
      rows.fill(0, 0, 256);
      rows.set([40, -40], inputs);
      rows.set([-40, 40], 2 * inputs);
      for (let i = 3 * inputs; i < 3 * inputs + 256; i++) rows[i]! *= 1e-20;

      const together = multiply(matrix, rows, 4, false);
      for (let row = 0; row < 4; row++) {
        const alone = multiply(matrix, rows.subarray(row * inputs, (row + 1) * inputs), 1, true);
        expect(alone).toEqual(together.slice(row * outputs, (row + 1) * outputs));
      }
      native.ggml_backend_buffer_free(buffer);
      native.ggml_free(context);
    });

    function multiply(matrix: TensorPtr, rows: Float32Array, count: number, isOurs: boolean): Uint32Array {
      const graph = new GraphBuilder(device);
      graph.begin(8);
      const x = graph.input(F32, rows.length / count, count);
      const matmul = isOurs ? rowMatmul!.multiply(graph, matrix, x) : graph.mulMat(matrix, x);
      graph.output(matmul);
      graph.allocate();
      graph.write(x, rows);
      graph.computeNow();
      const bits = graph.dataOf(matmul, Uint32Array).slice();
      graph.close();
      return bits;
    }
  },
);

it('openRowMatmul returns undefined if no matrix needs the kernel', async () => {
  const others = [placed('Q6_K', 256, 8), placed('Q4_K', 256, 12), placed('Q4_K', 256, 8, device.cpuBuffers)];
  expect(await openRowMatmul(device, others)).toBeUndefined();
});
