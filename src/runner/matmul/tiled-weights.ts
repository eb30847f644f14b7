import type { NativeApi, RawPtr, TensorPtr } from '../../ggml/ffi.ts';
import type { GraphBuilder } from '../../ggml/graph.ts';
import type { ActivationQuantization, TileKernel } from './tile-kernels.ts';

/** The shape of a matrix `[inputs, outputs]` (one expert), or of the matrices of experts. */
export interface TileShape {
  readonly inputs: number;
  readonly outputs: number;
  readonly experts: number;
}

/** A matrix, or the matrices of a layer's experts, laid out as tiles in plain host memory. */
export abstract class TiledWeights {
  readonly activations: ActivationQuantization;
  protected readonly kernel: TileKernel;
  protected readonly shape: TileShape;
  /** Of a quantized row, in floats. */
  protected readonly quantizedWidth: number;
  readonly #native: NativeApi;
  /** `struct matrix` of tiles.h. */
  readonly #record: BigInt64Array<ArrayBuffer>;

  /** `address`: of the tiles. */
  constructor(native: NativeApi, kernel: TileKernel, shape: TileShape, address: number) {
    this.activations = kernel.activations;
    this.kernel = kernel;
    this.shape = shape;
    this.quantizedWidth = kernel.quantizedBytes(shape.inputs) / 4;
    this.#native = native;
    this.#record = BigInt64Array.from([address, shape.inputs, shape.outputs, shape.experts], BigInt);
  }

  /** F32 `[ne0, ne1]`, which the kernel's function `compute` makes of the sources and these weights. */
  // biome-ignore lint/complexity/useMaxParams: the parameters of `GraphBuilder.custom`
  protected node(
    graph: GraphBuilder,
    sources: readonly TensorPtr[],
    ne0: number,
    ne1: number,
    compute: RawPtr,
  ): TensorPtr {
    const address = this.#native.addressOf(this.#record.buffer) as RawPtr;
    return graph.custom(sources, ne0, ne1, compute, address, this.#record);
  }
}
