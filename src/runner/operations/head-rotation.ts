import type { ComputeDevice } from '../../ggml/device.ts';
import type { NativeApi, RawPtr, TensorPtr } from '../../ggml/ffi.ts';
import { GraphBuilder } from '../../ggml/graph.ts';
import type { ModelConfig } from '../../ggml/model-config.ts';
import type { RopeConfig } from '../../ggml/rope-config.ts';
import { F32, I32 } from '../../ggml/types.ts';
import { type CompileOptions, doWithout, type NativeSource, openNative } from '../../native/compiler.ts';
import { NativeMemory } from '../../native/native-memory.ts';
import { tensorFields } from '../../native/tensor-fields.ts';
import { randomFloats } from '../random-values.ts';

export const rotateHeadsSource: NativeSource = {
  file: 'runner/operations/rotate-heads.c',
  headers: ['native/vector.h', tensorFields.header],
  definitions: tensorFields.definitions,
};

/** C supports rotated elements in multiples of this number, because vectors have up to 16 pairs. */
const dimensionStep = 32;
/** `HEAD_DIM_MAX` in C. */
const headDimMax = 512;

/** `struct rotation` of rotate-heads.c, in bytes. */
const recordBytes = 24;
const recordField = { dimension: 0, isAdjacent: 8, epsilon: 16 } as const;

/** What of a model's configuration decides the rotation of heads. */
type RotatedModel = Pick<ModelConfig, 'headDim' | 'hasQkNorm' | 'latent' | 'rmsEpsilon' | 'rope' | 'slidingWindow'>;

interface Heads {
  /** F32 `[headDim, heads, rows]` */
  readonly x: TensorPtr;
  /** Of the rows, I32 `[rows]`. */
  readonly positions: TensorPtr;
  /** The weights of the norm before RoPE, F32 `[headDim]`. */
  readonly norm: TensorPtr | undefined;
  readonly rope: RopeConfig;
}

/**
 * The norm of heads and RoPE by a C kernel (`rotate-heads.c`), with the bits of ggml's operations. ggml computes sines
 * and cosines in each layer, for queries and for keys. Here ggml computes a table of them once per step.
 */
export class HeadRotation {
  readonly #native: NativeApi;
  readonly #pointer: RawPtr;
  readonly #epsilon: number;
  readonly #records = new Map<RopeConfig, NativeMemory>();

  constructor(native: NativeApi, pointer: RawPtr, epsilon: number) {
    this.#native = native;
    this.#pointer = pointer;
    this.#epsilon = epsilon;
  }

  /** The rotations of one graph. `ropeFreqs`: a divisor for each frequency, if the model has them. */
  of(graph: GraphBuilder, ropeFreqs?: TensorPtr): GraphRotations {
    return new GraphRotations(graph, ropeFreqs, (sources, rope) => {
      const [x, table] = sources;
      const [headDim, heads, rows] = [graph.columnCountOf(x), graph.rowCountOf(x), graph.rowCountOf(table)];
      const record = this.#recordOf(rope).address as RawPtr;
      const rotated = graph.custom(sources, headDim * heads, rows, this.#pointer, record, this);
      return graph.reshape3d(rotated, headDim, heads, rows);
    });
  }

  #recordOf(rope: RopeConfig): NativeMemory {
    let record = this.#records.get(rope);
    if (record === undefined) {
      record = new NativeMemory(this.#native, recordBytes);
      record.setInt64(recordField.dimension, rope.dimension);
      record.setInt64(recordField.isAdjacent, rope.mode === 'normal' ? 1 : 0);
      record.bytes.setFloat32(recordField.epsilon, this.#epsilon, true);
      this.#records.set(rope, record);
    }
    return record;
  }
}

type RotationSources =
  | readonly [x: TensorPtr, table: TensorPtr]
  | readonly [x: TensorPtr, table: TensorPtr, norm: TensorPtr];
type RotationNode = (sources: RotationSources, rope: RopeConfig) => TensorPtr;

/** The rotations of one graph, whose layers share tables of sines and cosines. */
export class GraphRotations {
  readonly #graph: GraphBuilder;
  readonly #ropeFreqs: TensorPtr | undefined;
  readonly #node: RotationNode;
  /** By the positions. */
  readonly #tables = new Map<RopeConfig, Map<TensorPtr, TensorPtr>>();
  /** By length: inputs with 1 in the first half and 0 in the second half. */
  readonly #units = new Map<number, { readonly tensor: TensorPtr; readonly values: Float32Array }>();

  constructor(graph: GraphBuilder, ropeFreqs: TensorPtr | undefined, node: RotationNode) {
    this.#graph = graph;
    this.#ropeFreqs = ropeFreqs;
    this.#node = node;
  }

  /** F32 `[headDim, heads, rows]` */
  rotate({ x, positions, norm, rope }: Heads): TensorPtr {
    const table = this.#table(positions, rope);
    return this.#node(norm === undefined ? [x, table] : [x, table, norm], rope);
  }

  /** After the graph is allocated. */
  writeInputs(): void {
    for (const { tensor, values } of this.#units.values()) this.#graph.write(tensor, values);
  }

  /**
   * F32 `[dimension, rows]`: the cosines of a row, then its sines. RoPE makes them of pairs (1, 0): 1 * cos - 0 * sin
   * and 1 * sin + 0 * cos are exact.
   */
  #table(positions: TensorPtr, rope: RopeConfig): TensorPtr {
    let known = this.#tables.get(rope);
    if (known === undefined) {
      known = new Map();
      this.#tables.set(rope, known);
    }
    let table = known.get(positions);
    if (table === undefined) {
      const graph = this.#graph;
      const { dimension } = rope;
      const rows = graph.columnCountOf(positions);
      // All rows are the same memory.
      const pairs = graph.reinterpret(this.#unit(dimension), F32, [dimension, 1, rows], [dimension * F32.typeSize, 0]);
      const rotated = graph.rope(pairs, positions, this.#ropeFreqs, { ...rope, mode: 'neox' });
      table = graph.reshape2d(rotated, dimension, rows);
      known.set(positions, table);
    }
    return table;
  }

  #unit(length: number): TensorPtr {
    let unit = this.#units.get(length);
    if (unit === undefined) {
      unit = { tensor: this.#graph.input(F32, length), values: new Float32Array(length).fill(1, 0, length / 2) };
      this.#units.set(length, unit);
    }
    return unit.tensor;
  }
}

/**
 * Undefined on a GPU, without a compiler, for models without such heads, and if the kernel does not have the bits of
 * this build of ggml.
 */
export async function openHeadRotation(
  device: ComputeDevice,
  config: RotatedModel,
  options: CompileOptions = {},
): Promise<HeadRotation | undefined> {
  const { headDim, latent, rope, slidingWindow, rmsEpsilon } = config;
  if (device.kind !== 'cpu' || latent !== undefined || headDim > headDimMax) return undefined;
  const ropes = [...new Set([rope, slidingWindow?.rope ?? rope])].filter(({ mode }) => mode !== 'none');
  if (ropes.length === 0 || ropes.some(({ dimension }) => dimension % dimensionStep !== 0)) return undefined;
  const { native } = device;
  try {
    const pointer: RawPtr = await openNative(rotateHeadsSource, options, ({ path }) =>
      native.functionIn(path, 'kvasir_rotate_heads_pointer', 'raw')(),
    );
    const rotation = new HeadRotation(native, pointer, rmsEpsilon);
    return ropes.every((each) => equalsGgml(device, rotation, config, each)) ? rotation : undefined;
  } catch (error) {
    const instead = 'Steps are slower without it; the text is the same.';
    return doWithout(error, 'The kernel for RoPE', instead, options);
  }
}

/** Whether the kernel has the bits of ggml's norm and RoPE, for random heads. */
function equalsGgml(device: ComputeDevice, rotation: HeadRotation, config: RotatedModel, rope: RopeConfig): boolean {
  const { headDim, hasQkNorm, rmsEpsilon } = config;
  const heads = 5;
  const places = Int32Array.of(0, 1, 77, 4099);
  const graph = new GraphBuilder(device);
  try {
    graph.begin(32);
    const rows = graph.input(F32, headDim, heads * places.length);
    const weights = graph.input(F32, headDim);
    const positions = graph.input(I32, places.length);
    const x = graph.reshape3d(rows, headDim, heads, places.length);
    const wanted = graph.rope(hasQkNorm ? graph.rmsNorm(x, weights, rmsEpsilon) : x, positions, undefined, rope);
    const rotations = rotation.of(graph);
    const found = rotations.rotate({ x, positions, norm: hasQkNorm ? weights : undefined, rope });
    graph.output(wanted);
    graph.output(found);
    graph.allocate();
    graph.write(rows, randomFloats(headDim * heads * places.length, 1));
    graph.write(weights, randomFloats(headDim, 2));
    graph.write(positions, places);
    rotations.writeInputs();
    graph.computeNow();
    return Buffer.compare(Buffer.from(graph.dataOf(wanted)), Buffer.from(graph.dataOf(found))) === 0;
  } finally {
    graph.close();
  }
}
