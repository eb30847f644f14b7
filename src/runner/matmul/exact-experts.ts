import { allocateTensors } from '../../ggml/device.ts';
import type { TensorPtr } from '../../ggml/ffi.ts';
import { GraphBuilder } from '../../ggml/graph.ts';
import { copyOf } from '../../ggml/graph-copy.ts';
import { readTensors } from '../../ggml/tensor-reader.ts';
import { F32, I32, rowBytes } from '../../ggml/types.ts';
import type { PlacedMatrix } from '../weight-store.ts';
import {
  distinctShapes,
  exactUnavailable,
  type MatmulProbe,
  matmulWith,
  probedOutputs,
  randomRows,
  shapeOf,
} from './exact-row-rule.ts';
import { multiplyByToken, nodesPerToken } from './matmuls.ts';

const tokensMaxOnCpu = 64;
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
  [60, 200],
];

/**
 * Finds the experts' matrices of which ggml must multiply each token by itself, so that a token has the same bits whichever tokens share
 * its experts. On a CPU there are none: ggml multiplies each row alone for the types of weights that Kvasir supports, and this test
 * would find a build of ggml that does not. Throws `exactUnavailable`.
 */
export async function findExactExperts(
  { device, file, rowsMax }: MatmulProbe,
  matrices: readonly PlacedMatrix[],
): Promise<readonly TensorPtr[]> {
  const tokensMax = device.kind === 'cpu' ? tokensMaxOnCpu : rowsMax;
  const batches = testedBatches.filter(([first, count]) => first + count <= tokensMax);
  const byToken = new Set<string>();
  const refused: string[] = [];
  for (const matrix of distinctShapes(matrices)) {
    const isExact = (form: Form): Promise<boolean> =>
      withProbe({ device, file, rowsMax: tokensMax }, matrix, (multiply) => {
        const together = multiply(0, tokensMax, form);
        const perToken = together.length / tokensMax;
        return batches.every(([first, count]) =>
          multiply(first, count, form).every((bits, i) => bits === together[first * perToken + i]),
        );
      });
    if (await isExact(mulMatId)) continue;
    if (device.kind === 'gpu' && (await isExact(multiplyByToken))) byToken.add(shapeOf(matrix));
    else refused.push(matrix.source.type.name);
  }
  if (refused.length > 0) throw exactUnavailable({ device: device.description, operation: matmulWith(refused) });
  return matrices.filter((matrix) => byToken.has(shapeOf(matrix))).map(({ tensor }) => tensor);
}

type Form = typeof multiplyByToken;
const mulMatId: Form = (graph, matrices, x, chosen) => graph.mulMatId(matrices, x, chosen);

/** The bits of the products of tokens [first, first + count). */
type Multiply = (first: number, count: number, form: Form) => Uint32Array;

/** Calls `test` with matmuls of the first weights of a matrix, as a few experts. */
async function withProbe<T>(
  { device, file, rowsMax: tokensMax }: MatmulProbe,
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
      return test((first, count, form) => {
        graph.begin(8 + nodesPerToken * count);
        const x = graph.input(F32, inputs, count);
        const wanted = graph.input(I32, chosenCount, count);
        const product = form(graph, tensor, graph.reshape3d(x, inputs, 1, count), wanted);
        graph.output(product);
        graph.allocate();
        graph.write(x, rows.subarray(first * inputs, (first + count) * inputs));
        graph.write(wanted, chosen.subarray(first * chosenCount, (first + count) * chosenCount));
        graph.computeNow();
        return copyOf(graph, product, Uint32Array, outputs * chosenCount * count);
      });
    } finally {
      native.ggml_backend_buffer_free(buffer);
    }
  } finally {
    graph.close();
    native.ggml_free(context);
  }
}
