import { type DeltaNetConfig, deltaNetChannels } from '../../ggml/delta-net-config.ts';
import type { TensorPtr } from '../../ggml/ffi.ts';
import type { GraphBuilder } from '../../ggml/graph.ts';
import { F32 } from '../../ggml/types.ts';
import type { Matmuls } from '../matmul/matmuls.ts';
import { convolutionElements, type Mixers } from '../mixer/mixers.ts';
import type { LayerStates } from '../states/layer-states.ts';
import type { DeltaNetWeights } from '../weights.ts';

export interface DeltaNetParts {
  readonly graph: GraphBuilder;
  readonly matmuls: Matmuls;
  readonly mixers: Mixers;
  readonly config: DeltaNetConfig;
  readonly rmsEpsilon: number;
}

/**
 * A gated delta net. The layer's state is the rows of the convolution, followed by the states of the heads.
 *
 *   h -> q, k, v -> convolution, SiLU -> q and k of length 1, v
 *   h -> alpha, beta of each head
 *   q, k, v, alpha, beta -> recurrence -> RMS norm of each head -> times SiLU(z) of h -> out projection
 */
export function deltaNet(parts: DeltaNetParts, weights: DeltaNetWeights, h: TensorPtr, states: LayerStates): TensorPtr {
  const { graph, matmuls, mixers, config, rmsEpsilon } = parts;
  const { heads, keyHeads, headDim, taps } = config;
  const [channels, rows, width] = [deltaNetChannels(config), graph.rowCountOf(h), heads * headDim];
  const project = (matrix: TensorPtr): TensorPtr => matmuls.multiply(matrix, h, 'several');
  const convolved = mixers.shortConvolution(
    graph,
    project(weights.qkv),
    { kernel: weights.kernel, activation: 'silu' },
    { states, firstElement: 0 },
  );
  const headsOf = (first: number, count: number): TensorPtr =>
    graph.view3d(
      convolved,
      [headDim, count, rows],
      [headDim * F32.typeSize, channels * F32.typeSize],
      first * headDim * F32.typeSize,
    );
  const z = project(weights.gate);
  const inputs = {
    q: graph.l2Norm(headsOf(0, keyHeads), rmsEpsilon),
    k: graph.l2Norm(headsOf(keyHeads, keyHeads), rmsEpsilon),
    v: headsOf(2 * keyHeads, heads),
    alpha: project(weights.alpha),
    beta: project(weights.beta),
  };
  const y = mixers.deltaNet(graph, inputs, weights, { states, firstElement: convolutionElements({ taps, channels }) });
  const normed = graph.rmsNorm(graph.reshape3d(y, headDim, heads, rows), weights.norm, rmsEpsilon);
  const gated = graph.multiply(normed, graph.reshape3d(graph.silu(z), headDim, heads, rows));
  return matmuls.multiply(weights.outProjection, graph.reshape2d(gated, width, rows));
}
