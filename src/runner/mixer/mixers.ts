import type { TensorPtr } from '../../ggml/ffi.ts';
import type { GraphBuilder } from '../../ggml/graph.ts';
import type { LayerStates } from '../states/layer-states.ts';

/**
 * The operations of recurrent layers that carry a state from token to token. The rows of a step belong to several
 * sequences. A row gets the same bits in any batch, in any chunks of its sequence, and with any number of threads.
 *
 * One implementation is native (`native-mixers.ts`); the other calls ggml for each segment (`ggml-mixers.ts`). Results
 * are F32 `[width, rows]`, contiguous, with undefined or zero values in rows that belong to no segment.
 */
export interface Mixers {
  /** x: F32 `[channels, rows]`, also as a view. */
  shortConvolution(graph: GraphBuilder, x: TensorPtr, weights: ConvolutionWeights, state: StatePlace): TensorPtr;
  /** The recurrence of Mamba-2: F32 `[headDim * heads, rows]`. */
  scan(graph: GraphBuilder, inputs: ScanInputs, weights: ScanWeights, state: StatePlace): TensorPtr;
  /** The recurrence of a gated delta net: F32 `[headDim * heads, rows]`. */
  deltaNet(graph: GraphBuilder, inputs: DeltaNetInputs, weights: DeltaNetWeights, state: StatePlace): TensorPtr;
  /** The operations of a layer add at most this many tensors, and as many for each segment. */
  readonly nodesPerSegment: number;
}

/** Where a mixer's state is: its layer, and the first of its F32 elements in the layer's state. */
export interface StatePlace {
  readonly states: LayerStates;
  readonly firstElement: number;
}

/** A depthwise causal convolution over a channel's last rows. */
export interface ConvolutionWeights {
  /** F32 `[taps, channels]`. */
  readonly kernel: TensorPtr;
  /** F32 `[channels]`. */
  readonly bias?: TensorPtr | undefined;
  /** `silu`: the result is `x * sigmoid(x)`. */
  readonly activation: 'none' | 'silu';
}

/** All F32, also as views. */
export interface ScanInputs {
  /** `[headDim, heads, rows]` */
  readonly x: TensorPtr;
  /** `[stateSize, groups, rows]`; a group belongs to `heads / groups` adjacent heads. */
  readonly b: TensorPtr;
  readonly c: TensorPtr;
  /** `[heads, rows]`, before the bias and softplus. */
  readonly dt: TensorPtr;
}

/** F32, one number for each head; `a` is negative. */
export interface ScanWeights {
  readonly a: TensorPtr;
  readonly d: TensorPtr;
  readonly dtBias: TensorPtr;
}

/** All F32, also as views. */
export interface DeltaNetInputs {
  /** `[headDim, key heads, rows]`, normed; head h of `v` reads key head `h % key heads`, or another (`DeltaNetShape`). */
  readonly q: TensorPtr;
  readonly k: TensorPtr;
  /** `[headDim, heads, rows]` */
  readonly v: TensorPtr;
  /** `[heads, rows]`, before the bias and softplus. */
  readonly alpha: TensorPtr;
  /** `[heads, rows]`, before the sigmoid. */
  readonly beta: TensorPtr;
}

/** F32, one number for each head; `a` is negative. */
export interface DeltaNetWeights {
  readonly a: TensorPtr;
  readonly bias: TensorPtr;
}

/** The shapes of a model's mixers. */
export interface MixerShapes {
  readonly convolution?: ConvolutionShape;
  readonly scan?: ScanShape;
  readonly deltaNet?: DeltaNetShape;
}
export interface ConvolutionShape {
  readonly taps: number;
  readonly channels: number;
}
export interface ScanShape {
  readonly heads: number;
  readonly headDim: number;
  readonly stateSize: number;
}
export interface DeltaNetShape {
  readonly heads: number;
  /** Of keys and values. */
  readonly headDim: number;
  /** Head h of values reads head `floor(h * key heads / heads)` of keys. */
  readonly hasAdjacentHeads?: boolean;
}

/** F32 elements of a layer's state: the rows of the convolution, then the states of the heads. */
export function stateElements({ convolution, scan, deltaNet }: MixerShapes): number {
  const rows = convolution === undefined ? 0 : convolutionElements(convolution);
  const ofScan = scan === undefined ? 0 : scan.heads * scan.headDim * scan.stateSize;
  const ofDeltaNet = deltaNet === undefined ? 0 : deltaNet.heads * deltaNet.headDim * deltaNet.headDim;
  return rows + ofScan + ofDeltaNet;
}
export const convolutionElements = ({ taps, channels }: ConvolutionShape): number => (taps - 1) * channels;
