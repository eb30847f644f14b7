import { type DeltaNetConfig, deltaNetChannels } from '../../ggml/delta-net-config.ts';
import type { TensorPtr } from '../../ggml/ffi.ts';
import { F32 } from '../../ggml/types.ts';
import { convolutionElements } from '../mixer/mixers.ts';
import type { LayerStates } from '../states/layer-states.ts';
import type { LayerTensors } from '../weight-store.ts';
import type { MixerParts } from './mixer-parts.ts';

/** A gated delta net. */
export interface DeltaNetWeights {
  /** `[embedding, ...]`: queries, keys and values. */
  readonly qkv: TensorPtr;
  readonly gate: TensorPtr;
  /** F32 `[taps, channels]`. */
  readonly kernel: TensorPtr;
  /** `[embedding, heads]` */
  readonly alpha: TensorPtr;
  readonly beta: TensorPtr;
  /** F32, one number for each head: added to alpha; and the factor of decays. */
  readonly bias: TensorPtr;
  readonly a: TensorPtr;
  /** F32 `[headDim]`. */
  readonly norm: TensorPtr;
  readonly outProjection: TensorPtr;
}

export function deltaNetWeights(tensors: LayerTensors): DeltaNetWeights {
  return {
    qkv: tensors.matrix('attn_qkv.weight'),
    gate: tensors.matrix('attn_gate.weight'),
    kernel: tensors.vector('ssm_conv1d.weight'),
    alpha: tensors.matrix('ssm_alpha.weight'),
    beta: tensors.matrix('ssm_beta.weight'),
    bias: tensors.vector('ssm_dt.bias'),
    a: tensors.vector('ssm_a'),
    norm: tensors.vector('ssm_norm.weight'),
    outProjection: tensors.matrix('ssm_out.weight'),
  };
}

/**
 * A gated delta net. The layer's state is the rows of the convolution, followed by the states of the heads.
 *
 *   h -> q, k, v -> convolution, SiLU -> q and k of length 1, v
 *   h -> alpha, beta of each head
 *   q, k, v, alpha, beta -> recurrence -> RMS norm of each head -> times SiLU(z) of h -> out projection
 */
export function deltaNet(
  parts: MixerParts<DeltaNetConfig>,
  weights: DeltaNetWeights,
  h: TensorPtr,
  states: LayerStates,
): TensorPtr {
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
  const gated = graph.multiply(normed, graph.reshape3d(graph.activate('silu', z), headDim, heads, rows));
  return matmuls.multiply(weights.outProjection, graph.reshape2d(gated, width, rows));
}
