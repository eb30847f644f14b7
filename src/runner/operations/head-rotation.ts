import { assertDefined } from '../../base/assert.ts';
import type { ComputeDevice } from '../../ggml/device.ts';
import type { NativeApi, RawPtr, TensorPtr } from '../../ggml/ffi.ts';
import type { GraphBuilder } from '../../ggml/graph.ts';
import type { ModelConfig } from '../../ggml/model-config.ts';
import { hasDivisors, type RopeConfig } from '../../ggml/rope-config.ts';
import { type CompileOptions, doWithout, type NativeSource, openNative } from '../../native/compiler.ts';
import { NativeMemory } from '../../native/native-memory.ts';
import { tensorFields } from '../../native/tensor-fields.ts';
import { ropeConstants } from './rope-constants.ts';

export const rotateHeadsSource: NativeSource = {
  file: 'runner/operations/rotate-heads.c',
  headers: ['native/vector.h', 'native/elementary.h', tensorFields.header, 'runner/operations/rope-table.h'],
  definitions: tensorFields.definitions,
};

/** `HEAD_DIM_MAX` in C. */
const headDimMax = 512;

/** `struct rotation` of rotate-heads.c, in bytes. */
const recordBytes = 24;
const recordField = { dimension: 0, isAdjacent: 8, epsilon: 16 } as const;
/** `struct rope` of rope-table.h, without `kept`. */
const ropeBytes = 20;
const ropeField = { pairs: 0, step: 8, scale: 12, magnitude: 16 } as const;

/** The addresses of the functions of rotate-heads.c. */
interface RotationKernels {
  readonly table: RawPtr;
  readonly rotate: RawPtr;
  readonly sourceDigest: string;
}

/** What of a model's configuration decides the rotation of heads. */
type RotatedModel = Pick<ModelConfig, 'headDim' | 'latent' | 'rmsEpsilon' | 'rope' | 'slidingWindow'>;

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
 * The norm of heads and RoPE by C kernels (`rotate-heads.c`), which have the same bits on all CPUs that fuse multiply-adds. ggml computes
 * sines and cosines in each layer, for queries and for keys, by the C library. Here a table of them is computed once per step.
 */
export class HeadRotation {
  /** Of the kernels. It decides the bits of K. */
  readonly sourceDigest: string;
  readonly #native: NativeApi;
  readonly #kernels: RotationKernels;
  readonly #epsilon: number;
  /** Made when the model is loaded, because a step must not allocate memory that it can do without. */
  readonly #records: ReadonlyMap<RopeConfig, { readonly rotation: NativeMemory; readonly rope: NativeMemory }>;

  constructor(native: NativeApi, kernels: RotationKernels, config: RotatedModel) {
    this.sourceDigest = kernels.sourceDigest;
    this.#native = native;
    this.#kernels = kernels;
    this.#epsilon = config.rmsEpsilon;
    this.#records = new Map(
      ropesOf(config).map((rope) => [rope, { rotation: this.#rotationRecord(rope), rope: this.#ropeRecord(rope) }]),
    );
  }

  /** The rotations of one graph. `ropeFreqs`: a divisor for each pair's angle, F32 `[dimension / 2]`, if a RoPE of the model has them. */
  of(graph: GraphBuilder, ropeFreqs?: TensorPtr): GraphRotations {
    return new GraphRotations({
      table: (positions, rope) => {
        const divisors = hasDivisors(rope) ? ropeFreqs : undefined;
        const sources = divisors === undefined ? [positions] : [positions, divisors];
        const record = this.#recordsOf(rope).rope.address as RawPtr;
        return graph.custom(sources, rope.dimension, graph.columnCountOf(positions), this.#kernels.table, record, this);
      },
      rotated: ({ x, norm, rope }, table) => {
        const sources = norm === undefined ? [x, table] : [x, table, norm];
        const [headDim, heads, rows] = [graph.columnCountOf(x), graph.rowCountOf(x), graph.rowCountOf(table)];
        const record = this.#recordsOf(rope).rotation.address as RawPtr;
        const rotated = graph.custom(sources, headDim * heads, rows, this.#kernels.rotate, record, this);
        return graph.reshape3d(rotated, headDim, heads, rows);
      },
    });
  }

  #recordsOf(rope: RopeConfig) {
    return assertDefined(this.#records.get(rope), 'the graph has a RoPE of the model');
  }

  #rotationRecord({ dimension, mode }: RopeConfig): NativeMemory {
    const record = new NativeMemory(this.#native, recordBytes);
    record.setInt64(recordField.dimension, dimension);
    record.setInt64(recordField.isAdjacent, mode === 'normal' ? 1 : 0);
    record.bytes.setFloat32(recordField.epsilon, this.#epsilon, true);
    return record;
  }

  #ropeRecord(rope: RopeConfig): NativeMemory {
    const { step, scale, magnitude, kept } = ropeConstants(rope);
    const record = new NativeMemory(this.#native, ropeBytes + kept.byteLength);
    record.setInt64(ropeField.pairs, kept.length);
    record.bytes.setFloat32(ropeField.step, step, true);
    record.bytes.setFloat32(ropeField.scale, scale, true);
    record.bytes.setFloat32(ropeField.magnitude, magnitude, true);
    for (const [pair, share] of kept.entries()) record.bytes.setFloat32(ropeBytes + 4 * pair, share, true);
    return record;
  }
}

interface RotationNodes {
  /** F32 `[dimension, rows]`: the cosines of a row, then its sines. */
  table(positions: TensorPtr, rope: RopeConfig): TensorPtr;
  /** F32 `[headDim, heads, rows]` */
  rotated(heads: Heads, table: TensorPtr): TensorPtr;
}

/** The rotations of one graph, whose layers share tables of sines and cosines. */
export class GraphRotations {
  readonly #nodes: RotationNodes;
  /** By the positions. */
  readonly #tables = new Map<RopeConfig, Map<TensorPtr, TensorPtr>>();

  constructor(nodes: RotationNodes) {
    this.#nodes = nodes;
  }

  /** F32 `[headDim, heads, rows]` */
  rotate(heads: Heads): TensorPtr {
    return this.#nodes.rotated(heads, this.#table(heads));
  }

  #table({ positions, rope }: Heads): TensorPtr {
    let known = this.#tables.get(rope);
    if (known === undefined) {
      known = new Map();
      this.#tables.set(rope, known);
    }
    let table = known.get(positions);
    if (table === undefined) {
      table = this.#nodes.table(positions, rope);
      known.set(positions, table);
    }
    return table;
  }
}

/** The RoPE of a model's layers: none, one, or another one in layers with a window. */
export const ropesOf = ({ rope, slidingWindow }: Pick<RotatedModel, 'rope' | 'slidingWindow'>): readonly RopeConfig[] =>
  [...new Set([rope, slidingWindow?.rope ?? rope])].filter(({ mode }) => mode !== 'none');

/** Undefined on a GPU, without a compiler, and for models without RoPE or with larger heads. */
export async function openHeadRotation(
  { kind, native }: ComputeDevice,
  config: RotatedModel,
  options: CompileOptions = {},
): Promise<HeadRotation | undefined> {
  const length = config.latent?.ropeLength ?? Math.max(config.headDim, config.slidingWindow?.heads?.headDim ?? 0);
  if (kind !== 'cpu' || length > headDimMax || ropesOf(config).length === 0) return undefined;
  try {
    return await openNative(rotateHeadsSource, options, ({ path, sourceDigest }) => {
      const pointer = (name: string): RawPtr => native.functionIn(path, `kvasir_${name}_pointer`, 'raw')();
      const kernels = { table: pointer('rope_table'), rotate: pointer('rotate_heads'), sourceDigest };
      return new HeadRotation(native, kernels, config);
    });
  } catch (error) {
    const instead = "ggml's operations are used instead, and KV differs from engines that have the kernel.";
    return doWithout(error, 'The kernel for RoPE', instead, options);
  }
}
