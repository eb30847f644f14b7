import { allocateTensors, type ComputeDevice } from '../../ggml/device.ts';
import type { GgufFile } from '../../ggml/gguf.ts';
import { GraphBuilder } from '../../ggml/graph.ts';
import { readTensors } from '../../ggml/tensor-reader.ts';
import { F32, I32, rowBytes } from '../../ggml/types.ts';
import type { PlacedMatrix } from '../weight-store.ts';
import { distinctShapes, exactUnavailable, probedOutputs, randomRows } from './exact-row-rule.ts';

const tokensMax = 64;
/** Batches that are tested: first token and number of tokens. */
const testedBatches: readonly (readonly [number, number])[] = [
  [0, 1],
  [17, 1],
  [5, 2],
  [40, 3],
  [9, 5],
  [3, 8],
  [33, 16],
  [0, 48],
];

/**
 * Checks that ggml's matmuls with experts give a token the same bits whichever tokens share its experts. ggml multiplies
 * each row alone for the types of weights that Kvasir supports, so no padding is needed; this test would find a build
 * of ggml that does not. Throws `exactUnavailable`.
 */
export async function checkExactExperts(
  device: ComputeDevice,
  file: GgufFile,
  matrices: readonly PlacedMatrix[],
): Promise<void> {
  for (const matrix of distinctShapes(matrices)) {
    const isExact = await withProbe(device, file, matrix, (multiply) => {
      const together = multiply(0, tokensMax);
      const perToken = together.length / tokensMax;
      return testedBatches.every(([first, count]) =>
        multiply(first, count).every((bits, i) => bits === together[first * perToken + i]),
      );
    });
    if (!isExact) throw exactUnavailable({ cpu: device.description, type: matrix.source.type.name });
  }
}

/** The bits of the products of tokens [first, first + count). */
type Multiply = (first: number, count: number) => Uint32Array;

/** Calls `test` with matmuls of the first weights of a matrix, as a few experts. */
async function withProbe<T>(
  device: ComputeDevice,
  file: GgufFile,
  { source, buffers }: PlacedMatrix,
  test: (multiply: Multiply) => T,
): Promise<T> {
  const { native } = device;
  const [inputs, allOutputs, allExperts] = source.ne;
  const outputs = probedOutputs(allOutputs);
  const experts = Math.min(allExperts, 4);
  const chosenCount = Math.min(experts, 2);
  const byteLength = rowBytes(source.type, inputs) * outputs * experts;
  const context = native.ggml_init({ mem_size: 4096, mem_buffer: 0, no_alloc: true });
  const tensor = native.ggml_new_tensor_3d(context, source.type.id, inputs, outputs, experts);
  const rows = randomRows(inputs * tokensMax);
  const chosen = Int32Array.from({ length: tokensMax * chosenCount }, (_, i) => {
    const token = Math.floor(i / chosenCount);
    return (token * token + (i % chosenCount)) % experts;
  });
  const graph = new GraphBuilder(device);
  try {
    const buffer = allocateTensors(device, context, buffers, { purpose: 'a probe of the kernels', bytes: byteLength });
    try {
      native.ggml_backend_buffer_set_usage(buffer, 1);
      const accept = (bytes: Uint8Array): void => native.ggml_backend_tensor_set(tensor, bytes, 0, byteLength);
      await readTensors(file, [{ tensor: { ...source, byteLength }, accept }]);
      return test((first, count) => {
        graph.begin(8);
        const x = graph.input(F32, inputs, count);
        const wanted = graph.input(I32, chosenCount, count);
        const product = graph.mulMatId(tensor, graph.reshape3d(x, inputs, 1, count), wanted);
        graph.output(product);
        graph.allocate();
        graph.write(x, rows.subarray(first * inputs, (first + count) * inputs));
        graph.write(wanted, chosen.subarray(first * chosenCount, (first + count) * chosenCount));
        graph.computeNow();
        return graph.dataOf(product, Uint32Array).slice();
      });
    } finally {
      native.ggml_backend_buffer_free(buffer);
    }
  } finally {
    graph.close();
    native.ggml_free(context);
  }
}
