import type { ComputeDevice } from '../../ggml/device.ts';
import type { RawPtr, TensorPtr } from '../../ggml/ffi.ts';
import type { GraphBuilder } from '../../ggml/graph.ts';
import { dataPointer } from '../../ggml/tensor-struct.ts';
import { type CompileOptions, doWithout, type NativeSource, openNative } from '../../native/compiler.ts';
import { tensorFields } from '../../native/tensor-fields.ts';
import type { PlacedMatrix } from '../weight-store.ts';

const inputsMax = 32768;

export const rowMatmulSource: NativeSource = {
  file: 'runner/matmul/q4k-row.c',
  headers: [tensorFields.header],
  definitions: { INPUTS_MAX: inputsMax, ...tensorFields.definitions },
};

/**
 * One row times a repacked Q4_K matrix, with the bits of ggml's kernel for four rows. ggml's kernel for one row has
 * other bits. So exact numerics would have to pad a single row to four rows, which takes nearly twice the time. For
 * CPUs and shapes that `TiledMatmul` does not support.
 */
export class RowMatmul {
  readonly #device: ComputeDevice;
  readonly #pointer: RawPtr;
  /** `struct matrix` of q4k-row.c, for each matrix: weights, inputs, outputs. */
  readonly #records = new Map<TensorPtr, BigInt64Array>();

  constructor(device: ComputeDevice, pointer: RawPtr) {
    this.#device = device;
    this.#pointer = pointer;
  }

  /** Whether the kernel supports the matrix's type, shape and buffers. */
  fits(matrix: PlacedMatrix): boolean {
    return isForRowMatmul(this.#device, matrix);
  }

  /** Registers a matrix whose weights are in memory. */
  add(matrix: TensorPtr, inputs: number, outputs: number): void {
    const record = new BigInt64Array(new ArrayBuffer(24));
    record.set([BigInt(dataPointer(this.#device.native, matrix)), BigInt(inputs), BigInt(outputs)]);
    this.#records.set(matrix, record);
  }

  has(matrix: TensorPtr): boolean {
    return this.#records.has(matrix);
  }

  /** F32 `[outputs, 1]`, of a registered matrix and x `[inputs, 1]`. */
  multiply(graph: GraphBuilder, matrix: TensorPtr, x: TensorPtr): TensorPtr {
    const record = this.#records.get(matrix) as BigInt64Array<ArrayBuffer>;
    const address = this.#device.native.addressOf(record.buffer) as RawPtr;
    return graph.custom(x, Number(record[2]), 1, this.#pointer, address, record);
  }
}

function isForRowMatmul(device: ComputeDevice, { source, buffers }: PlacedMatrix): boolean {
  const [inputs, outputs] = source.ne;
  const isRepacked = buffers === device.repackedBuffers;
  return isRepacked && source.type.name === 'Q4_K' && inputs <= inputsMax && inputs % 256 === 0 && outputs % 8 === 0;
}

/** Undefined if no matrix needs the kernel, if ggml repacks in another way (ARM), or without a compiler. */
export async function openRowMatmul(
  device: ComputeDevice,
  matrices: readonly PlacedMatrix[],
  options: CompileOptions = {},
): Promise<RowMatmul | undefined> {
  if (process.arch !== 'x64' || device.kind !== 'cpu' || device.repackedBuffers === undefined) return undefined;
  if (!matrices.some((matrix) => isForRowMatmul(device, matrix))) return undefined;
  try {
    const pointer = await openNative(rowMatmulSource, options, ({ path }) =>
      device.native.functionIn(path, 'kvasir_multiply_pointer', 'raw')(),
    );
    return new RowMatmul(device, pointer);
  } catch (error) {
    const instead = 'Decoding of a single request is slower without it; the text is the same.';
    return doWithout(error, 'The kernel for single rows', instead, options);
  }
}
