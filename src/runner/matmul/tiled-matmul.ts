import { setImmediate as nextTurn } from 'node:timers/promises';
import { assert, assertDefined } from '../../base/assert.ts';
import type { ComputeDevice } from '../../ggml/device.ts';
import type { NativeApi, RawPtr, TensorPtr } from '../../ggml/ffi.ts';
import type { GgufTensor } from '../../ggml/gguf.ts';
import type { GraphBuilder } from '../../ggml/graph.ts';
import { dataPointer, tensorField } from '../../ggml/tensor-struct.ts';
import { rowBytes } from '../../ggml/types.ts';
import { type Compiled, type CompileOptions, doWithout, type NativeSource, openNative } from '../../native/compiler.ts';
import type { PlacedMatrix } from '../weights.ts';
import { TiledExperts } from './tiled-experts.ts';

/** A single row is quantized on the stack. */
const inputsMax = 32768;

/** How activations are quantized: inputs that share a scale. Matrices with equal quantization share the result. */
export type ActivationQuantization = 'none' | 'by 32' | 'by 256';

interface Kind {
  readonly file: string;
  readonly headers: readonly string[];
  readonly activations: ActivationQuantization;
  /** Inputs of a block: `BLOCK` in C. */
  readonly blockInputs: number;
}

const shared = ['dot.h', 'tiles.h', 'tile-operations.h', 'expert-operations.h'];
const kinds: Readonly<Record<string, Kind>> = {
  F16: { file: 'f16-tiles.c', headers: shared, activations: 'none', blockInputs: 16 },
  Q8_0: {
    file: 'q8-tiles.c',
    headers: [...shared, 'q8-rows.h', 'q8-matmul.h'],
    activations: 'by 32',
    blockInputs: 32,
  },
  Q4_0: {
    file: 'q4-tiles.c',
    headers: [...shared, 'q8-rows.h', 'q8-matmul.h'],
    activations: 'by 32',
    blockInputs: 32,
  },
  Q4_K: { file: 'q4k-tiles.c', headers: [...shared, 'k-rows.h'], activations: 'by 256', blockInputs: 256 },
  Q6_K: { file: 'q6k-tiles.c', headers: [...shared, 'k-rows.h'], activations: 'by 256', blockInputs: 256 },
};

export interface TileFunctions {
  /** The instructions for which the kernel is compiled: `FORM` in C. */
  readonly form: string;
  readonly sourceDigest: string;
  /** Outputs in a tile. */
  readonly tileOutputs: number;
  /** Bytes of a quantized row. */
  quantizedBytes(inputs: number): number;
  readonly quantizeRows: RawPtr;
  readonly multiply: RawPtr;
  readonly multiplyRow: RawPtr;
  readonly takeRows: RawPtr;
  readonly orderPairs: RawPtr;
  readonly quantizeInOrder: RawPtr;
  readonly multiplyExperts: RawPtr;
  readonly multiplyExpertsOfToken: RawPtr;
  tile(matrix: RawPtr, scratch: RawPtr, inputs: number, first: number, end: number): void;
}

/** The shape of a tiled matrix, or of the matrices of experts. */
export interface TileShape {
  readonly inputs: number;
  readonly outputs: number;
  readonly experts: number;
  readonly activations: ActivationQuantization;
  /** Of a quantized row, in floats. */
  readonly quantizedWidth: number;
}

/**
 * Matmuls by Kvasir's kernels (`q8-tiles.c` and others), with the same bits for any number of rows. With AVX-512 VNNI,
 * they are two to seven times as fast as ggml's for prompts and batches. For a single row, they are at least 1.5 times
 * as fast. With AVX2, they are a little more than twice as fast. `take` lays a matrix out as tiles in place, and ggml
 * can no longer read it.
 */
export class TiledMatmul {
  readonly #device: ComputeDevice;
  readonly #functions: ReadonlyMap<string, TileFunctions>;
  readonly #taken = new Map<TensorPtr, TiledMatrix>();
  readonly #takenExperts = new Map<TensorPtr, TiledExperts>();

  constructor(device: ComputeDevice, functions: ReadonlyMap<string, TileFunctions>) {
    this.#device = device;
    this.#functions = functions;
  }

  /** The types of matrices that have a kernel. */
  get types(): readonly string[] {
    return [...this.#functions.keys()];
  }

  /** All that decides bits: the types, and the form and the source of each type's kernel. */
  get identity(): string {
    return [...this.#functions].map(([type, { form, sourceDigest }]) => `${type} (${form}, ${sourceDigest})`).join(' ');
  }

  /** Whether a kernel supports this type and shape; the matrix must be in plain host buffers. */
  fits({ type, ne: [inputs, outputs] }: GgufTensor): boolean {
    const functions = this.#functions.get(type.name);
    const kind = kinds[type.name];
    if (functions === undefined || kind === undefined) return false;
    return inputs % kind.blockInputs === 0 && inputs <= inputsMax && outputs % functions.tileOutputs === 0;
  }

  /**
   * Lays a matrix out as tiles, in place. Yields to the event loop between parts, because large models take seconds.
   */
  async take(matrix: PlacedMatrix): Promise<void> {
    if (this.#taken.has(matrix.tensor)) return;
    const { functions, shape, record } = await this.#layOut(matrix);
    this.#taken.set(matrix.tensor, new TiledMatrix(this.#device.native, functions, shape, record));
  }

  /** The same for the matrices of experts. */
  async takeExperts(matrices: PlacedMatrix): Promise<void> {
    const { functions, shape, record } = await this.#layOut(matrices);
    this.#takenExperts.set(matrices.tensor, new TiledExperts(this.#device.native, functions, shape, record));
  }

  /** A matrix that was taken. */
  matrix(tensor: TensorPtr): TiledMatrix | undefined {
    return this.#taken.get(tensor);
  }

  /** Matrices of experts that were taken. */
  experts(tensor: TensorPtr): TiledExperts | undefined {
    return this.#takenExperts.get(tensor);
  }

  async #layOut({ tensor, source, buffers }: PlacedMatrix) {
    assert(this.fits(source), 'a matrix of a type and a shape that has a kernel');
    assert(buffers.isHost && buffers !== this.#device.repackedBuffers, 'a matrix in the layout of the file');
    const functions = assertDefined(this.#functions.get(source.type.name), 'a kernel for a matrix that fits');
    const { native } = this.#device;
    const [inputs, outputs, experts] = source.ne;
    const { tileOutputs } = functions;
    const tiles = (outputs / tileOutputs) * experts;
    const at = dataPointer(native, tensor);
    const scratch = new ArrayBuffer(rowBytes(source.type, inputs) * tileOutputs);
    const step = Math.max(1, Math.floor((64 << 20) / scratch.byteLength));
    for (let first = 0; first < tiles; first += step) {
      const end = Math.min(first + step, tiles);
      functions.tile(at as RawPtr, native.addressOf(scratch) as RawPtr, inputs, first, end);
      await nextTurn();
    }
    const { activations } = assertDefined(kinds[source.type.name], 'a type with a kernel');
    const shape: TileShape = {
      inputs,
      outputs,
      experts,
      activations,
      quantizedWidth: functions.quantizedBytes(inputs) / 4,
    };
    // `struct matrix` of tiles.h.
    const record = BigInt64Array.from([at, inputs, outputs, experts], BigInt);
    return { functions, shape, record };
  }
}

/** A matrix that is laid out as tiles. */
export class TiledMatrix {
  readonly activations: ActivationQuantization;
  readonly #native: NativeApi;
  readonly #functions: TileFunctions;
  readonly #shape: TileShape;
  /** `struct matrix` of tiles.h. */
  readonly #record: BigInt64Array<ArrayBuffer>;

  constructor(native: NativeApi, functions: TileFunctions, shape: TileShape, record: BigInt64Array<ArrayBuffer>) {
    this.activations = shape.activations;
    this.#native = native;
    this.#functions = functions;
    this.#shape = shape;
    this.#record = record;
  }

  /**
   * Quantizes x, F32 `[inputs, rows]`, for `multiply`. Matrices with equal inputs and equal quantization may share it.
   */
  quantizeRows(graph: GraphBuilder, x: TensorPtr): TensorPtr {
    return this.#custom(graph, x, this.#shape.quantizedWidth, this.#functions.quantizeRows);
  }

  /** F32 `[outputs, rows]`, of the result of `quantizeRows`. */
  multiply(graph: GraphBuilder, quantized: TensorPtr): TensorPtr {
    return this.#custom(graph, quantized, this.#shape.outputs, this.#functions.multiply);
  }

  /** F32 `[outputs, 1]`, of x `[inputs, 1]`. */
  multiplyRow(graph: GraphBuilder, x: TensorPtr): TensorPtr {
    return this.#custom(graph, x, this.#shape.outputs, this.#functions.multiplyRow);
  }

  /** F32 `[inputs, rows]`: the matrix's rows with these indices, I32 `[rows]`. */
  takeRows(graph: GraphBuilder, indices: TensorPtr, count: number): TensorPtr {
    return graph.custom(indices, this.#shape.inputs, count, this.#functions.takeRows, this.#address, this.#record);
  }

  /** F32 `[width, rows]`, with as many rows as x. */
  #custom(graph: GraphBuilder, x: TensorPtr, width: number, compute: RawPtr): TensorPtr {
    return graph.custom(x, width, graph.rowCountOf(x), compute, this.#address, this.#record);
  }

  get #address(): RawPtr {
    return this.#native.addressOf(this.#record.buffer) as RawPtr;
  }
}

/**
 * Kernels for the given types. Undefined if no type has a kernel, on a CPU without the instructions, on a GPU, and
 * without a compiler.
 */
export async function openTiledMatmul(
  device: ComputeDevice,
  types: Iterable<string>,
  options: CompileOptions = {},
): Promise<TiledMatmul | undefined> {
  if (process.arch !== 'x64' || device.kind !== 'cpu') return undefined;
  const wanted = new Set(types);
  const compile = async ([type, kind]: [string, Kind]): Promise<[string, TileFunctions] | undefined> => {
    try {
      return [type, await openNative(sourceOf(kind), options, (compiled) => functionsOf(device.native, compiled))];
    } catch (error) {
      const instead =
        "ggml's kernels are used instead, which are slower, and the text may differ from engines that have the kernel.";
      return doWithout(error, `The kernel for ${type} matrices`, instead, options);
    }
  };
  const compiled = await Promise.all(
    Object.entries(kinds).flatMap((entry) => (wanted.has(entry[0]) ? compile(entry) : [])),
  );
  const functions = new Map(compiled.filter((entry) => entry !== undefined));
  return functions.size === 0 ? undefined : new TiledMatmul(device, functions);
}

const below = (name: string): string => `runner/matmul/${name}`;

function sourceOf({ file, headers }: Kind): NativeSource {
  const definitions = {
    INPUTS_MAX: inputsMax,
    TENSOR_SOURCE: tensorField.source,
    TENSOR_DATA: tensorField.data,
    TENSOR_NE: tensorField.ne,
    TENSOR_NB: tensorField.nb,
  };
  return { file: below(file), headers: ['native/vector.h', ...headers.map(below)], definitions };
}

function functionsOf(native: NativeApi, { path, sourceDigest }: Compiled): TileFunctions {
  const pointer = (name: string): RawPtr => native.functionIn(path, `kvasir_${name}_pointer`, 'raw')();
  const quantizedBytes = native.functionIn(path, 'kvasir_quantized_bytes', 'i64', 'i64');
  return {
    form: native.functionIn(path, 'kvasir_form', 'str')(),
    sourceDigest,
    tileOutputs: Number(native.functionIn(path, 'kvasir_tile_outputs', 'i64')()),
    quantizedBytes: (inputs) => Number(quantizedBytes(inputs)),
    quantizeRows: pointer('quantize_rows'),
    multiply: pointer('multiply'),
    multiplyRow: pointer('multiply_row'),
    takeRows: pointer('take_rows'),
    orderPairs: pointer('order_pairs'),
    quantizeInOrder: pointer('quantize_in_order'),
    multiplyExperts: pointer('multiply_experts'),
    multiplyExpertsOfToken: pointer('multiply_experts_of_token'),
    tile: native.functionIn(path, 'kvasir_tile', 'void', 'raw', 'raw', 'i64', 'i64', 'i64'),
  };
}
