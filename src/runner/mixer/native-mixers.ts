import { assertDefined } from '../../base/assert.ts';
import type { NativeApi, RawPtr, TensorPtr } from '../../ggml/ffi.ts';
import type { GraphBuilder } from '../../ggml/graph.ts';
import { dataPointer } from '../../ggml/tensor-struct.ts';
import { NativeMemory } from '../../native/native-memory.ts';
import type { MixerKernels } from './mixer-kernels.ts';
import type {
  ConvolutionWeights,
  DeltaNetInputs,
  DeltaNetWeights,
  MixerShapes,
  Mixers,
  ScanInputs,
  ScanWeights,
  StatePlace,
} from './mixers.ts';

/**
 * Mixers by C kernels (`convolution.c`, `scan.c`, `delta-net.c`), which read and write states in the pool and take all
 * sequences of a step in one call. A graph can be computed again for other segments with as many rows.
 */
export class NativeMixers implements Mixers {
  readonly nodesPerSegment = 0;
  readonly #native: NativeApi;
  readonly #kernels: MixerKernels;
  readonly #shapes: MixerShapes;
  /** By kernel of a convolution: its taps as rows of channels. */
  readonly #taps = new Map<TensorPtr, NativeMemory>();

  constructor(native: NativeApi, kernels: MixerKernels, shapes: MixerShapes) {
    this.#native = native;
    this.#kernels = kernels;
    this.#shapes = shapes;
  }

  shortConvolution(graph: GraphBuilder, x: TensorPtr, weights: ConvolutionWeights, state: StatePlace): TensorPtr {
    const { convolve } = assertDefined(this.#kernels.convolution, 'a kernel for convolutions');
    const { channels } = assertDefined(this.#shapes.convolution, 'a model with convolutions');
    const silu = weights.activation === 'silu' ? 1 : 0;
    const { address } = this.#tapsOf(weights.kernel);
    // `struct convolution`
    const record = this.#record(state, [address, this.#pointer(weights.bias), channels, silu]);
    return this.#custom(graph, [x], [channels, graph.rowCountOf(x)], convolve, record);
  }

  scan(graph: GraphBuilder, { x, b, c, dt }: ScanInputs, { a, d, dtBias }: ScanWeights, state: StatePlace): TensorPtr {
    const kernel = assertDefined(this.#kernels.scan, 'a kernel for scans');
    const { heads, headDim } = assertDefined(this.#shapes.scan, 'a model with scans');
    // `struct scan`
    const record = this.#record(state, [heads, this.#pointer(a), this.#pointer(d), this.#pointer(dtBias)]);
    const rows = graph.rowCountOf(dt);
    const gates = this.#custom(graph, [dt], [2 * heads, rows], kernel.prepareGates, record);
    return this.#custom(graph, [x, b, c, gates], [heads * headDim, rows], kernel.scan, record);
  }

  deltaNet(
    graph: GraphBuilder,
    { q, k, v, alpha, beta }: DeltaNetInputs,
    { a, bias }: DeltaNetWeights,
    state: StatePlace,
  ): TensorPtr {
    const kernel = assertDefined(this.#kernels.deltaNet, 'a kernel for delta nets');
    const { heads, headDim, hasAdjacentHeads } = assertDefined(this.#shapes.deltaNet, 'a model with delta nets');
    const adjacent = hasAdjacentHeads === true ? heads / graph.rowCountOf(q) : 1;
    // `struct delta_net`
    const record = this.#record(state, [heads, this.#pointer(a), this.#pointer(bias), adjacent]);
    const rows = graph.rowCountOf(alpha);
    const gates = this.#custom(graph, [alpha, beta], [2 * heads, rows], kernel.prepareGates, record);
    return this.#custom(graph, [q, k, v, gates], [heads * headDim, rows], kernel.deltaNet, record);
  }

  /** The first two fields are the same in the records of all kernels. */
  #record({ states, firstElement }: StatePlace, rest: readonly number[]): BigInt64Array<ArrayBuffer> {
    return BigInt64Array.from([states.address, 4 * firstElement, ...rest], BigInt);
  }

  // biome-ignore lint/complexity/useMaxParams: the parameters of a custom operation, in ggml's order
  #custom(
    graph: GraphBuilder,
    sources: readonly TensorPtr[],
    [width, rows]: readonly [number, number],
    compute: RawPtr,
    record: BigInt64Array<ArrayBuffer>,
  ): TensorPtr {
    return graph.custom(sources, width, rows, compute, this.#native.addressOf(record.buffer) as RawPtr, record);
  }

  #pointer(tensor: TensorPtr | undefined): number {
    return tensor === undefined ? 0 : dataPointer(this.#native, tensor);
  }

  /** ggml has the taps of a channel next to each other, `[taps, channels]`; the kernel needs `[channels, taps]`. */
  #tapsOf(kernel: TensorPtr): NativeMemory {
    let memory = this.#taps.get(kernel);
    if (memory === undefined) {
      const { taps, channels } = assertDefined(this.#shapes.convolution, 'a model with convolutions');
      memory = new NativeMemory(this.#native, 4 * taps * channels);
      const source = new Float32Array(this.#native.memoryAt(this.#pointer(kernel), 4 * taps * channels));
      const target = new Float32Array(memory.words.buffer);
      for (let i = 0; i < source.length; i++) target[(i % taps) * channels + Math.floor(i / taps)] = source[i]!;
      this.#taps.set(kernel, memory);
    }
    return memory;
  }
}
