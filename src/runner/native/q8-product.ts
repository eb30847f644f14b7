import { setImmediate as nextTurn } from 'node:timers/promises';
import { assert } from '../../base/assert.ts';
import type { ComputeDevice } from '../../ggml/device.ts';
import type { NativeApi, RawPtr, TensorPtr } from '../../ggml/ffi.ts';
import type { GraphBuilder } from '../../ggml/graph.ts';
import { dataPointer, tensorField } from '../../ggml/tensor-struct.ts';
import { rowBytes } from '../../ggml/types.ts';
import type { PlacedMatrix } from '../weights.ts';
import { CompileFailure, type CompileOptions, compileNative } from './compiler.ts';

/** Outputs of one tile, and what its inputs come in. */
const tileOutputs = 16;
const blockInputs = 32;
/** A block of a rounded row, in floats: 32 bytes, a scale, a sum. */
const roundedFloats = 10;
/** A single row is rounded on the stack. */
const inputsMax = 32768;

interface Functions {
  readonly roundRows: RawPtr;
  readonly multiply: RawPtr;
  readonly multiplyRow: RawPtr;
  readonly takeRows: RawPtr;
  tile(matrix: RawPtr, scratch: RawPtr, inputs: number, first: number, end: number): void;
}

/**
 * Products with Q8_0 matrices by a kernel of ours (`q8-product.c`): three to four times as fast as ggml's for prompts and
 * batches on a CPU with AVX-512 VNNI, as fast for a single row, and with the same bits for any number of rows. A matrix
 * that it takes is laid out anew where it lies, and ggml can no longer read it.
 */
export class Q8Product {
  readonly #device: ComputeDevice;
  readonly #functions: Functions;
  /** `struct matrix` of q8-product.c: tiles, inputs, outputs. */
  readonly #records = new Map<TensorPtr, BigInt64Array<ArrayBuffer>>();

  constructor(device: ComputeDevice, functions: Functions) {
    this.#device = device;
    this.#functions = functions;
  }

  /** Whether a matrix of this type, shape and place is one for it. */
  fits({ source, buffers }: PlacedMatrix): boolean {
    const [inputs, outputs] = source.ne;
    const isPlain = buffers.isHost && buffers !== this.#device.repackedBuffers;
    const isShaped = inputs % blockInputs === 0 && inputs <= inputsMax && outputs % tileOutputs === 0;
    return isPlain && isShaped && source.type.name === 'Q8_0';
  }

  /** Lays a matrix out anew, in place. The event loop gets its turn now and then: large models take seconds. */
  async take({ tensor, source }: PlacedMatrix): Promise<void> {
    if (this.#records.has(tensor)) return;
    const { native } = this.#device;
    const [inputs, outputs] = source.ne;
    const tiles = outputs / tileOutputs;
    const at = dataPointer(native, tensor);
    const scratch = new ArrayBuffer(rowBytes(source.type, inputs) * tileOutputs);
    const step = Math.max(1, Math.floor((64 << 20) / scratch.byteLength));
    for (let first = 0; first < tiles; first += step) {
      const end = Math.min(first + step, tiles);
      this.#functions.tile(at as RawPtr, native.addressOf(scratch) as RawPtr, inputs, first, end);
      await nextTurn();
    }
    const record = new BigInt64Array(new ArrayBuffer(24));
    record.set([BigInt(at), BigInt(inputs), BigInt(outputs)]);
    this.#records.set(tensor, record);
  }

  has(matrix: TensorPtr): boolean {
    return this.#records.has(matrix);
  }

  /** x, F32 `[inputs, rows]`, as `multiply` wants it. Several matrices may share it. */
  roundRows(graph: GraphBuilder, matrix: TensorPtr, x: TensorPtr): TensorPtr {
    const record = this.#recordOf(matrix);
    const width = (Number(record[1]) / blockInputs) * roundedFloats;
    return this.#custom(graph, x, width, graph.rowCountOf(x), this.#functions.roundRows, record);
  }

  /** F32 `[outputs, rows]`, of what `roundRows` gave. */
  multiply(graph: GraphBuilder, matrix: TensorPtr, rounded: TensorPtr): TensorPtr {
    const record = this.#recordOf(matrix);
    return this.#custom(graph, rounded, Number(record[2]), graph.rowCountOf(rounded), this.#functions.multiply, record);
  }

  /** F32 `[outputs, 1]`, of x `[inputs, 1]`. */
  multiplyRow(graph: GraphBuilder, matrix: TensorPtr, x: TensorPtr): TensorPtr {
    const record = this.#recordOf(matrix);
    return this.#custom(graph, x, Number(record[2]), 1, this.#functions.multiplyRow, record);
  }

  /** F32 `[inputs, rows]`: the matrix's own rows of these numbers, I32 `[rows]`. */
  takeRows(graph: GraphBuilder, matrix: TensorPtr, numbers: TensorPtr, count: number): TensorPtr {
    const record = this.#recordOf(matrix);
    return this.#custom(graph, numbers, Number(record[1]), count, this.#functions.takeRows, record);
  }

  #recordOf(matrix: TensorPtr): BigInt64Array<ArrayBuffer> {
    const record = this.#records.get(matrix);
    assert(record !== undefined, 'a matrix that was not taken');
    return record;
  }

  #custom(
    graph: GraphBuilder,
    x: TensorPtr,
    width: number,
    rows: number,
    compute: RawPtr,
    record: BigInt64Array<ArrayBuffer>,
  ): TensorPtr {
    const address = this.#device.native.addressOf(record.buffer) as RawPtr;
    return graph.custom(x, width, rows, compute, address, record);
  }
}

/** Absent on a CPU without the instructions, on a GPU, and where there is no compiler. */
export async function openQ8Product(
  device: ComputeDevice,
  options: CompileOptions = {},
): Promise<Q8Product | undefined> {
  if (process.arch !== 'x64' || device.kind !== 'cpu') return undefined;
  const definitions = {
    INPUTS_MAX: inputsMax,
    TENSOR_SOURCE: tensorField.source,
    TENSOR_DATA: tensorField.data,
    TENSOR_NE: tensorField.ne,
  };
  try {
    const { path } = await compileNative({ file: 'q8-product.c', headers: ['vector.h'], definitions }, options);
    return new Q8Product(device, functionsOf(device.native, path));
  } catch (error) {
    if (error instanceof CompileFailure) return undefined;
    throw error;
  }
}

function functionsOf(native: NativeApi, path: string): Functions {
  const pointer = (name: string): RawPtr => native.functionIn(path, `kvasir_${name}_pointer`, 'raw')();
  return {
    roundRows: pointer('round_rows'),
    multiply: pointer('multiply'),
    multiplyRow: pointer('multiply_row'),
    takeRows: pointer('take_rows'),
    tile: native.functionIn(path, 'kvasir_tile_q8', 'void', 'raw', 'raw', 'i64', 'i64', 'i64'),
  };
}
