import type { TensorPtr } from '../../ggml/ffi.ts';
import type { GraphBuilder } from '../../ggml/graph.ts';
import { type MambaConfig, mambaChannels, mambaWidth } from '../../ggml/mamba-config.ts';
import { F32 } from '../../ggml/types.ts';
import type { Matmuls } from '../matmul/matmuls.ts';
import { convolutionElements, type Mixers } from '../mixer/mixers.ts';
import type { LayerStates } from '../states/layer-states.ts';
import type { MambaWeights } from '../weights.ts';

export interface MambaParts {
  readonly graph: GraphBuilder;
  readonly matmuls: Matmuls;
  readonly mixers: Mixers;
  readonly config: MambaConfig;
  readonly rmsEpsilon: number;
}

/**
 * Mamba-2. The layer's state is the rows of the convolution, followed by the states of the heads.
 *
 *   h -> in projection -> z, xBC, dt
 *   xBC -> convolution, SiLU -> x, B, C
 *   x, B, C, dt -> recurrence -> times SiLU(z) -> RMS norm of each group -> out projection
 */
export function mamba(parts: MambaParts, weights: MambaWeights, h: TensorPtr, states: LayerStates): TensorPtr {
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
