import type { ComputeDevice } from '../../ggml/device.ts';
import { nullPtr, type RawPtr, type TensorPtr } from '../../ggml/ffi.ts';
import type { GraphBuilder } from '../../ggml/graph.ts';
import { F32 } from '../../ggml/types.ts';
import { type CompileOptions, doWithout, type NativeSource, openNative } from '../../native/compiler.ts';
import { tensorFields } from '../../native/tensor-fields.ts';

/**
 * The sum of each token's rows times their weights: x F32 `[n, count, tokens]`, weights F32 `[count, tokens]` -> F32 `[n,
 * tokens]`. Both functions give the same bits.
 */
export type WeightedSum = (graph: GraphBuilder, x: TensorPtr, weights: TensorPtr) => TensorPtr;

/** By ggml's operations, which write and read the products and each sum. */
export const weightedSumOfGgml: WeightedSum = (graph, x, weights) => {
  const [n, count, tokens] = [graph.columnCountOf(x), graph.columnCountOf(weights), graph.rowCountOf(weights)];
  const products = graph.multiply(x, graph.reshape3d(weights, 1, count, tokens));
  const rowBytes = n * F32.typeSize;
  const rows = (k: number): TensorPtr => graph.view2d(products, n, tokens, count * rowBytes, k * rowBytes);
  let sum = rows(0);
  for (let k = 1; k < count; k++) sum = graph.add(sum, rows(k));
  return sum;
};

export const weightedSumSource: NativeSource = {
  file: 'runner/matmul/weighted-sum.c',
  headers: ['native/vector.h', tensorFields.header],
  definitions: tensorFields.definitions,
};

/** By a C kernel, in one pass. Undefined on a GPU and without a compiler. */
export async function openWeightedSum(
  { kind, native }: ComputeDevice,
  options: CompileOptions = {},
): Promise<WeightedSum | undefined> {
  if (kind !== 'cpu') return undefined;
  try {
    const pointer: RawPtr = await openNative(weightedSumSource, options, ({ path }) =>
      native.functionIn(path, 'kvasir_weighted_sum_pointer', 'raw')(),
    );
    return (graph, x, weights) =>
      graph.custom([x, weights], graph.columnCountOf(x), graph.rowCountOf(weights), pointer, nullPtr(), native);
  } catch (error) {
    const instead = 'Experts are slower without it; the text is the same.';
    return doWithout(error, 'The kernel for sums of experts', instead, options);
  }
}
