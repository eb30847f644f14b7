import { type Architecture, type MixerKind, traitsOf } from '../../ggml/architectures.ts';
import type { TensorPtr } from '../../ggml/ffi.ts';
import type { LayerStates } from '../states/layer-states.ts';
import { bertLayer } from './bert.ts';
import type { LayerOperations } from './layer-operations.ts';
import type { LayerWeights } from './layer-weights.ts';
import { residualLayer, singlePartLayer } from './residual-layer.ts';

/** The part of a layer after attention or the mixer. Returns the layer's output, F32 `[embedding, rows]`. */
export type Layer = (operations: LayerOperations, weights: LayerWeights, inputs: LayerInputs) => TensorPtr;

export interface LayerInputs {
  /** The layer's input, F32 `[embedding, rows]`. */
  readonly x: TensorPtr;
  /** In the shape of x: the result of attention after its output matrix, or of the mixer; in a layer that is only a network, x after its norm. */
  readonly attended: TensorPtr;
  /** Of a model with per-layer embeddings: the layer's own embedding of the tokens, F32 `[length, rows]`. */
  readonly tokenInput?: TensorPtr | undefined;
}

/**
 * The part of a layer that continues a state instead of attention. `h` is the layer's input after its norm, F32
 * `[embedding, rows]`. Returns the result in this shape; the architecture's `Layer` gets it as `attended`.
 */
export type Mixer = (
  operations: LayerOperations,
  weights: LayerWeights,
  h: TensorPtr,
  states: LayerStates,
) => TensorPtr;

/** What the architecture's row in `architectures.ts` says. `DecoderBuilder` has the parts that all architectures share. */
export function layerOf(architecture: Architecture): Layer {
  const { bertNetwork, hasSinglePartLayers, network = 'swiglu' } = traitsOf(architecture);
  if (bertNetwork !== undefined) return bertLayer;
  return hasSinglePartLayers === true ? singlePartLayer : residualLayer(network);
}

/** Undefined for architectures without layers with a state. */
export function mixerOf(architecture: Architecture): Mixer | undefined {
  const { mixer } = traitsOf(architecture);
  return mixer && mixers[mixer];
}

const mixers: Readonly<Record<MixerKind, Mixer>> = {
  'short convolution': (operations, weights, h, states) => operations.shortConvolution(weights, h, states),
  mamba: (operations, weights, h, states) => operations.mamba(weights, h, states),
  'delta net': (operations, weights, h, states) => operations.deltaNet(weights, h, states),
};
