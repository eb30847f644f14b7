import type { TensorPtr } from '../../ggml/ffi.ts';
import { type MambaConfig, mambaChannels, mambaWidth } from '../../ggml/mamba-config.ts';
import { F32 } from '../../ggml/types.ts';
import { convolutionElements } from '../mixer/mixers.ts';
import type { LayerStates } from '../states/layer-states.ts';
import type { LayerTensors } from '../weight-store.ts';
import type { MixerParts } from './mixer-parts.ts';

/** Mamba-2. */
export interface MambaWeights {
  /** `[embedding, ...]`: the gate, the channels of the convolution, and dt of each head. */
  readonly inProjection: TensorPtr;
  /** F32 `[taps, channels]`. */
  readonly kernel: TensorPtr;
  readonly kernelBias: TensorPtr;
  /** F32, one number for each head. */
  readonly dtBias: TensorPtr;
  readonly a: TensorPtr;
  readonly d: TensorPtr;
  /** F32 `[width / groups, groups]`. */
  readonly norm: TensorPtr;
  readonly outProjection: TensorPtr;
}

export function mambaWeights(tensors: LayerTensors): MambaWeights {
  return {
    inProjection: tensors.matrix('ssm_in.weight'),
    kernel: tensors.vector('ssm_conv1d.weight'),
    kernelBias: tensors.vector('ssm_conv1d.bias'),
    dtBias: tensors.vector('ssm_dt.bias'),
    a: tensors.vector('ssm_a'),
    d: tensors.vector('ssm_d'),
    norm: tensors.vector('ssm_norm.weight'),
    outProjection: tensors.matrix('ssm_out.weight'),
  };
}

/**
 * Mamba-2. The layer's state is the rows of the convolution, followed by the states of the heads.
 *
 *   h -> in projection -> z, xBC, dt
 *   xBC -> convolution, SiLU -> x, B, C
 *   x, B, C, dt -> recurrence -> times SiLU(z) -> RMS norm of each group -> out projection
 */
export function mamba(
  parts: MixerParts<MambaConfig>,
  weights: MambaWeights,
  h: TensorPtr,
  states: LayerStates,
): TensorPtr {
  const { graph, matmuls, mixers, config, rmsEpsilon } = parts;
  const { heads, headDim, stateSize, groups, taps } = config;
  const [width, channels, rows] = [mambaWidth(config), mambaChannels(config), graph.rowCountOf(h)];
  const projected = matmuls.multiply(weights.inProjection, h);
  const columns = (first: number, count: number): TensorPtr =>
    graph.view2d(projected, count, rows, graph.strideOf(projected, 1), first * F32.typeSize);
  const convolved = mixers.shortConvolution(
    graph,
    columns(width, channels),
    { kernel: weights.kernel, bias: weights.kernelBias, activation: 'silu' },
    { states, firstElement: 0 },
  );
  const parted = (first: number, size: number, count: number): TensorPtr =>
    graph.view3d(convolved, [size, count, rows], [size * F32.typeSize, channels * F32.typeSize], first * F32.typeSize);
  const inputs = {
    x: parted(0, headDim, heads),
    b: parted(width, stateSize, groups),
    c: parted(width + groups * stateSize, stateSize, groups),
    dt: columns(width + channels, heads),
  };
  const y = mixers.scan(graph, inputs, weights, { states, firstElement: convolutionElements({ taps, channels }) });
  const gated = graph.swiglu(graph.contiguous(columns(0, width)), y);
  const normed = graph.rmsNorm(graph.reshape3d(gated, width / groups, groups, rows), weights.norm, rmsEpsilon);
  return matmuls.multiply(weights.outProjection, graph.reshape2d(normed, width, rows));
}
