import type { NativeApi, RawPtr, TensorPtr } from '../../ggml/ffi.ts';
import type { GraphBuilder } from '../../ggml/graph.ts';
import type { ActivationQuantization, TileKernel } from './tile-kernels.ts';

/** The shape of a matrix `[inputs, outputs]` (one expert), or of the matrices of experts. */
export interface TileShape {
  readonly inputs: number;
  readonly outputs: number;
  readonly experts: number;
}

/** Where weights are, in plain host memory. */
export interface TilePlace {
  /** Of the tiles; with `room`, of rows in the layout of the file. */
  readonly address: number;
  /** Each thread lays a tile out there before it multiplies it. */
  readonly room?: TileRoom;
}

/** Memory for a tile of each thread. */
export class TileRoom {
  readonly address: number;
  readonly bytesOfThread: number;
  /** Keeps the memory. */
  readonly #memory: ArrayBuffer;

  constructor(native: NativeApi, tileBytes: number, threads: number) {
    this.bytesOfThread = Math.ceil(tileBytes / alignment) * alignment;
    this.#memory = new ArrayBuffer(this.bytesOfThread * threads + alignment);
    this.address = Math.ceil(native.addressOf(this.#memory) / alignment) * alignment;
  }
}

/** A cache line. */
const alignment = 64;

/** A matrix, or the matrices of a layer's experts, of which a kernel multiplies tiles. */
export abstract class TiledWeights {
  readonly activations: ActivationQuantization;
  protected readonly kernel: TileKernel;
  protected readonly shape: TileShape;
  /** Of a quantized row, in floats. */
  protected readonly quantizedWidth: number;
  readonly #native: NativeApi;
  /** `struct matrix` of tiles.h. */
  readonly #record: BigInt64Array<ArrayBuffer>;
  /** Its memory must live as long as the record. */
  readonly #room: TileRoom | undefined;

  constructor(native: NativeApi, kernel: TileKernel, shape: TileShape, { address, room }: TilePlace) {
    this.activations = kernel.activations;
    this.kernel = kernel;
    this.shape = shape;
    this.quantizedWidth = kernel.quantizedBytes(shape.inputs) / 4;
    this.#native = native;
    this.#room = room;
    const { inputs, outputs, experts } = shape;
    const ofRoom = [this.#room?.address ?? 0, this.#room?.bytesOfThread ?? 0];
    this.#record = BigInt64Array.from([address, inputs, outputs, experts, ...ofRoom], BigInt);
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
