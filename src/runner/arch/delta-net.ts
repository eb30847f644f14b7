import { type DeltaNetConfig, deltaNetChannels } from '../../ggml/delta-net-config.ts';
import type { TensorPtr } from '../../ggml/ffi.ts';
import type { GraphBuilder } from '../../ggml/graph.ts';
import { F32 } from '../../ggml/types.ts';
import { convolutionElements } from '../mixer/mixers.ts';
import type { LayerStates } from '../states/layer-states.ts';
import type { LayerTensors } from '../weight-store.ts';
import type { MixerParts } from './mixer-parts.ts';

/** A gated delta net. */
export interface DeltaNetWeights {
  /** `[embedding, ...]`: queries, keys and values; and the gates. Or one matrix for all, in the order of `hasJointProjection`. */
  readonly inputs: { readonly qkv: TensorPtr; readonly gate: TensorPtr } | { readonly joint: TensorPtr };
  /** F32 `[taps, channels]`. */
  readonly kernel: TensorPtr;
  /** `[embedding, heads]`, or one matrix `[embedding, 2 * heads]` in the order of `hasAdjacentHeads`. */
  readonly gates: { readonly alpha: TensorPtr; readonly beta: TensorPtr } | { readonly joint: TensorPtr };
  /** F32, one number for each head: added to alpha; and the factor of decays. */
  readonly bias: TensorPtr;
  readonly a: TensorPtr;
  /** F32 `[headDim]`. */
  readonly norm: TensorPtr;
  readonly outProjection: TensorPtr;
}

export function deltaNetWeights(
  tensors: LayerTensors,
  { hasAdjacentHeads, hasJointProjection }: DeltaNetConfig,
): DeltaNetWeights {
  return {
    inputs:
      hasJointProjection === true
        ? { joint: tensors.matrix('ssm_in.weight') }
        : { qkv: tensors.matrix('attn_qkv.weight'), gate: tensors.matrix('attn_gate.weight') },
    kernel: tensors.vector('ssm_conv1d.weight'),
    gates:
      hasAdjacentHeads === true
        ? { joint: tensors.matrix('ssm_ba.weight') }
        : { alpha: tensors.matrix('ssm_alpha.weight'), beta: tensors.matrix('ssm_beta.weight') },
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
  const { qkv, z } = projections(parts, weights, h);
  const convolved = mixers.shortConvolution(
    graph,
    qkv,
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
  const inputs = {
    q: graph.l2Norm(headsOf(0, keyHeads), rmsEpsilon),
    k: graph.l2Norm(headsOf(keyHeads, keyHeads), rmsEpsilon),
    v: headsOf(2 * keyHeads, heads),
    ...alphaAndBeta(parts, weights, h),
  };
  const y = mixers.deltaNet(graph, inputs, weights, { states, firstElement: convolutionElements({ taps, channels }) });
  const normed = graph.rmsNorm(graph.reshape3d(y, headDim, heads, rows), weights.norm, rmsEpsilon);
  const gated = graph.multiply(normed, graph.reshape3d(graph.activate('silu', z), headDim, heads, rows));
  return matmuls.multiply(weights.outProjection, graph.reshape2d(gated, width, rows));
}

/** `qkv`: F32 `[channels, rows]`. `z`: F32 `[heads * headDim, rows]`. */
function projections(
  { graph, matmuls, config }: MixerParts<DeltaNetConfig>,
  { inputs }: DeltaNetWeights,
  h: TensorPtr,
) {
  const project = (matrix: TensorPtr): TensorPtr => matmuls.multiply(matrix, h, 'several');
  if (!('joint' in inputs)) return { qkv: project(inputs.qkv), z: project(inputs.gate) };
  const { heads, keyHeads, headDim } = config;
  const values = heads / keyHeads;
  const joint = project(inputs.joint);
  // Of each head of keys: q, k, values, gates.
  const part = (first: number, count: number): TensorPtr =>
    ofEachKeyHead(graph, joint, keyHeads, { first: first * headDim, count: count * headDim });
  const qk = graph.concat(part(0, 1), part(1, 1), 'columns');
  return { qkv: graph.concat(qk, part(2, values), 'columns'), z: part(2 + values, values) };
}

/** Each F32 `[heads, rows]`. */
function alphaAndBeta(
  { graph, matmuls, config }: MixerParts<DeltaNetConfig>,
  { gates }: DeltaNetWeights,
  h: TensorPtr,
) {
  const project = (matrix: TensorPtr): TensorPtr => matmuls.multiply(matrix, h, 'several');
  if (!('joint' in gates)) return { alpha: project(gates.alpha), beta: project(gates.beta) };
  const count = config.heads / config.keyHeads;
  const joint = project(gates.joint);
  const half = (first: number): TensorPtr => ofEachKeyHead(graph, joint, config.keyHeads, { first, count });
  return { alpha: half(count), beta: half(0) };
}

/** F32 `[keyHeads * size, rows]` -> `[keyHeads * count, rows]`: some elements of those that each head of keys has. */
function ofEachKeyHead(
  graph: GraphBuilder,
  joint: TensorPtr,
  keyHeads: number,
  { first, count }: { readonly first: number; readonly count: number },
): TensorPtr {
  const [rows, rowBytes] = [graph.rowCountOf(joint), graph.strideOf(joint, 1)];
  const view = graph.view3d(joint, [count, keyHeads, rows], [rowBytes / keyHeads, rowBytes], first * F32.typeSize);
  return graph.reshape2d(graph.contiguous(view), count * keyHeads, rows);
}
