import type { ComputeDevice } from '../../ggml/device.ts';
import type { NativeApi, RawPtr, TensorPtr } from '../../ggml/ffi.ts';
import type { GraphKernels } from '../../ggml/graph-kernels.ts';
import { tensorField, tensorStruct } from '../../ggml/tensor-struct.ts';
import { F32 } from '../../ggml/types.ts';
import { type CompileOptions, doWithout, openNative } from '../../native/compiler.ts';
import { tensorFields } from '../../native/tensor-fields.ts';

/** The inputs of a small matrix are a multiple of this number: `SUMS` in C. */
export const smallMatrixInputs = 32;

export const rowOperationsSource = {
  file: 'runner/operations/row-operations.c',
  headers: ['native/vector.h', 'native/exp.h', 'native/elementary.h', tensorFields.header],
  definitions: tensorFields.definitions,
};

/** Operations by a C kernel (`row-operations.c`), with the same bits on all CPUs that fuse multiply-adds. */
export interface RowOperations extends GraphKernels {
  /** Whether this CPU fuses multiply-adds, as all of Kvasir's kernels are then compiled to do. */
  readonly isFused: boolean;
  readonly sourceDigest: string;
  readonly lowRank: LowRankKernels;
}

/** Matrices are `[outputs, n]`: transposed. */
export interface LowRankKernels {
  /** Matrix, x `[n, rows]` and indices of rows of x -> their products. */
  readonly multiplyRows: RawPtr;
  /** Matrix, x `[n, count]`, sums `[outputs, rows]` and the indices of `count` rows of the sums, to which the products are added in place. */
  readonly addToRows: RawPtr;
}

/** Undefined on a GPU and without a compiler. */
export async function openRowOperations(
  { kind, native }: ComputeDevice,
  options: CompileOptions = {},
): Promise<RowOperations | undefined> {
  if (kind !== 'cpu') return undefined;
  try {
    return await openNative(rowOperationsSource, options, ({ path, sourceDigest }) => {
      const pointer = (name: string): RawPtr => native.functionIn(path, `kvasir_${name}_pointer`, 'raw')();
      return {
        silu: pointer('silu'),
        swiglu: pointer('swiglu'),
        sigmoid: pointer('sigmoid'),
        tanh: pointer('tanh'),
        geglu: pointer('geglu'),
        gelu: pointer('gelu'),
        clampedSwiglu: pointer('clamped_swiglu'),
        softMax: pointer('soft_max'),
        smallMatmul: pointer('small_matmul'),
        lowRank: { multiplyRows: pointer('multiply_rows'), addToRows: pointer('add_to_rows') },
        outputsOf: smallMatrices(native),
        isFused: native.functionIn(path, 'kvasir_is_fused', 'i32')() === 1,
        sourceDigest,
      };
    });
  } catch (error) {
    const instead = "ggml's operations are used instead, and KV differs from engines that have the kernel.";
    return doWithout(error, 'The kernel for activations and softmax', instead, options);
  }
}

/** Weights do not change, so each matrix is looked at once. */
function smallMatrices(native: NativeApi): GraphKernels['outputsOf'] {
  const known = new Map<TensorPtr, number | undefined>();
  return (matrix) => {
    if (!known.has(matrix)) known.set(matrix, outputsOf(native, matrix));
    return known.get(matrix);
  };
}

function outputsOf(native: NativeApi, matrix: TensorPtr): number | undefined {
  const fields = tensorStruct(native, matrix);
  const ne = (i: number): number => Number(fields.getBigInt64(tensorField.ne + 8 * i, true));
  const isSupported = fields.getInt32(tensorField.type, true) === F32.id && ne(0) % smallMatrixInputs === 0;
  return isSupported ? ne(1) : undefined;
}
