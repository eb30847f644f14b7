import { createHash } from 'node:crypto';
import type { NativeApi, RawPtr } from '../../ggml/ffi.ts';
import { Q8_0 } from '../../ggml/types.ts';
import { CompileFailure, type CompileOptions, type NativeSource, openNative } from '../../native/compiler.ts';
import { tensorFields } from '../../native/tensor-fields.ts';
import { type KvType, partCount } from '../kv-memory.ts';

/** The C kernel, compiled for one shape of heads. */
export interface AttentionKernel {
  readonly shape: AttentionShape;
  /** The function that ggml's threads call: `void (*)(tensor, thread, threads, layer record)`. */
  readonly pointer: RawPtr;
  /** Bytes of each thread's scratch memory. */
  readonly scratchBytes: number;
  readonly wasCached: boolean;
  /** SHA-256 of the compiled library. */
  readonly libraryDigest: string;
  /** See `Compiled`. */
  readonly sourceDigest: string;
}

export interface AttentionShape {
  readonly headDim: number;
  /** Query heads per KV head. */
  readonly group: number;
  readonly blockSize: number;
  /** Of K and V in the pool. */
  readonly kvType: KvType;
  /** As in `KvLayout`. */
  readonly valueInKey?: number | undefined;
}

/**
 * Sizes that TypeScript and C share. `tile` and `range` decide bits, because they decide the order of sums. The other
 * sizes only decide how work is split, and can be tuned.
 */
export const kernelSizes = {
  /** Tokens whose weights are computed together. */
  tile: 64,
  /** The smallest number of tokens in a unit of work; a row's ranges are joined in ascending order. */
  range: 256,
  /** The largest number of queries (rows times heads) in a unit. */
  queriesMax: 96,
  /**
   * The smallest number of queries of one KV head for which K is transposed. Fewer queries wait for memory, which is read
   * faster if a unit reads all heads of a token together.
   */
  queriesWide: 12,
} as const;

/** Loads the kernel from the cache, or compiles it. Throws `CompileFailure` with the reason. */
export async function loadAttentionKernel(
  native: NativeApi,
  shape: AttentionShape,
  options: CompileOptions = {},
): Promise<AttentionKernel> {
  if (shape.headDim % 16 !== 0 || !Number.isInteger(shape.group) || shape.group > kernelSizes.queriesMax) {
    throw new CompileFailure(
      `it does not support head size ${shape.headDim} with ${shape.group} query heads per KV head`,
    );
  }
  return openNative(attentionSource(shape), options, ({ path, library, wasCached, sourceDigest }) => ({
    shape,
    pointer: native.functionIn(path, 'kvasir_attend_pointer', 'raw')(),
    scratchBytes: native.functionIn(path, 'kvasir_scratch_bytes', 'i64')(),
    wasCached,
    libraryDigest: createHash('sha256').update(library).digest('hex'),
    sourceDigest,
  }));
}

const ownHeaders = [
  ...['attention-records.h', 'softmax.h', 'narrow-tile.h'],
  ...['wide-tile.h', 'wide-scores.h', 'wide-keys.h', 'wide-values.h'],
];

/** The C source of a kernel for a shape. */
export const attentionSource = ({
  headDim,
  group,
  kvType,
  valueInKey,
}: Omit<AttentionShape, 'blockSize'>): NativeSource => ({
  file: 'runner/attention/paged-attention.c',
  headers: ['native/vector.h', tensorFields.header, ...ownHeaders.map((name) => `runner/attention/${name}`)],
  definitions: {
    HEAD_DIM: headDim,
    GROUP: group,
    KV_Q8_0: kvType === Q8_0 ? 1 : 0,
    KV_PARTS: partCount({ valueInKey }),
    TILE: kernelSizes.tile,
    RANGE: kernelSizes.range,
    QUERIES_MAX: kernelSizes.queriesMax,
    QUERIES_WIDE: kernelSizes.queriesWide,
    ...tensorFields.definitions,
  },
});
