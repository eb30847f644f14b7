import type { NativeApi, RawPtr } from '../../ggml/ffi.ts';
import { tensorField } from '../../ggml/tensor-struct.ts';
import { Q8_0 } from '../../ggml/types.ts';
import { CompileFailure, type CompileOptions, openNative } from '../../native/compiler.ts';
import type { KvType } from '../kv-memory.ts';

/** The C kernel, compiled for one shape of heads and blocks. */
export interface AttentionKernel {
  readonly shape: AttentionShape;
  /** What ggml's threads call: `void (*)(tensor, thread, threads, layer record)`. */
  readonly pointer: RawPtr;
  /** Bytes that each thread works in. */
  readonly scratchBytes: number;
  readonly wasCached: boolean;
  /** What decides the bits that it computes: see `Compiled`. */
  readonly sourceDigest: string;
}

export interface AttentionShape {
  readonly headDim: number;
  /** Query heads per KV head. */
  readonly group: number;
  readonly blockSize: number;
  /** Of K and V in the pool. */
  readonly kvType: KvType;
}

/**
 * Sizes that both sides know. `tile` and `range` decide bits (what is summed with what); the others only decide who
 * computes what, and can be tuned.
 */
export const kernelSizes = {
  /** Tokens whose weights are computed together. */
  tile: 64,
  /** Tokens that one unit of work computes at least; a row's ranges are joined in ascending order. */
  range: 256,
  /** Queries (rows times heads) of one unit at most. */
  queriesMax: 96,
  /** From so many queries of one KV head on, K is turned on its side for them. */
  queriesWide: 12,
} as const;

/** Compiles (or finds) and loads the kernel. Throws `CompileFailure` with the reason, in words. */
export async function loadAttentionKernel(
  native: NativeApi,
  shape: AttentionShape,
  options: CompileOptions = {},
): Promise<AttentionKernel> {
  if (shape.headDim % 16 !== 0 || !Number.isInteger(shape.group) || shape.group > kernelSizes.queriesMax) {
    throw new CompileFailure(`heads of ${shape.headDim}, ${shape.group} to a KV head, are not its shape`);
  }
  return openNative(sourceFor(shape), options, ({ path, wasCached, sourceDigest }) => ({
    shape,
    pointer: native.functionIn(path, 'kvasir_attend_pointer', 'raw')(),
    scratchBytes: native.functionIn(path, 'kvasir_scratch_bytes', 'i64')(),
    wasCached,
    sourceDigest,
  }));
}

const forms = ['attention-records.h', 'softmax.h', 'narrow-tile.h', 'wide-tile.h'];

const sourceFor = ({ headDim, group, blockSize, kvType }: AttentionShape) => ({
  file: 'runner/attention/paged-attention.c',
  headers: ['native/vector.h', ...forms.map((name) => `runner/attention/${name}`)],
  definitions: {
    HEAD_DIM: headDim,
    GROUP: group,
    BLOCK_SIZE: blockSize,
    KV_Q8_0: kvType === Q8_0 ? 1 : 0,
    TILE: kernelSizes.tile,
    RANGE: kernelSizes.range,
    QUERIES_MAX: kernelSizes.queriesMax,
    QUERIES_WIDE: kernelSizes.queriesWide,
    TENSOR_SOURCE: tensorField.source,
    TENSOR_DATA: tensorField.data,
  },
});
