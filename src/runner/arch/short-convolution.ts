import type { TensorPtr } from '../../ggml/ffi.ts';
import { F32 } from '../../ggml/types.ts';
import type { LayerStates } from '../states/layer-states.ts';
import type { LayerTensors } from '../weight-store.ts';
import type { MixerParts } from './mixer-parts.ts';

/** A gated convolution over the tokens just before. */
export interface ShortConvolutionWeights {
  /** F32 `[taps, embedding]`. */
  readonly kernel: TensorPtr;
  /** `[embedding, 3 * embedding]`: both gates and the values. */
  readonly inProjection: TensorPtr;
  readonly outProjection: TensorPtr;
}

export function shortConvolutionWeights(tensors: LayerTensors): ShortConvolutionWeights {
  return {
    kernel: tensors.vector('shortconv.conv.weight'),
    inProjection: tensors.matrix('shortconv.in_proj.weight'),
    outProjection: tensors.matrix('shortconv.out_proj.weight'),
  };
}

/**
 * A gated convolution over the last tokens. The layer's state is the input of the convolution for these tokens.
 *
 *   h -> in projection -> b, c, x
 *   c * convolution(b * x) -> out projection
 */
export function shortConvolution(
  { graph, matmuls, mixers }: MixerParts<undefined>,
  { kernel, inProjection, outProjection }: ShortConvolutionWeights,
  h: TensorPtr,
  states: LayerStates,
): TensorPtr {
  const projected = matmuls.multiply(inProjection, h, 'several');
  const [width, rows] = [graph.columnCountOf(projected) / 3, graph.rowCountOf(h)];
  const third = (index: number): TensorPtr =>
    graph.view2d(projected, width, rows, 3 * width * F32.typeSize, index * width * F32.typeSize);
  const weights = { kernel, activation: 'none' } as const;
  const gated = graph.multiply(third(0), third(2));
  const convolved = mixers.shortConvolution(graph, gated, weights, { states, firstElement: 0 });
  return matmuls.multiply(outProjection, graph.multiply(third(1), convolved), 'several');
}
