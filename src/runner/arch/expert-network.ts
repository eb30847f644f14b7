import type { ExpertConfig, ExpertGroups } from '../../ggml/expert-config.ts';
import type { TensorPtr } from '../../ggml/ffi.ts';
import type { GraphBuilder } from '../../ggml/graph.ts';
import type { ModelConfig } from '../../ggml/model-config.ts';
import { F32 } from '../../ggml/types.ts';
import type { Matmuls } from '../matmul/matmuls.ts';
import type { LayerTensors } from '../weight-store.ts';
import { type NetworkWeights, networkWeights } from './dense-network.ts';

/** A mixture of experts. */
export interface ExpertWeights {
  /** `[embedding, experts]` */
  readonly router: TensorPtr;
  /**
   * A matrix of each expert. Without a gate, an expert is `down(relu(up(h))^2)`. `in up`: the first half of the outputs of `up` is the
   * gate.
   */
  readonly gate: TensorPtr | 'in up' | undefined;
  readonly up: TensorPtr;
  readonly down: TensorPtr;
  /** F32 `[experts]`: multiplies the results of the experts. */
  readonly scale: TensorPtr | undefined;
  readonly biases: ExpertBiases | undefined;
  /** F32 `[experts]`, added to the probabilities by which experts are chosen. */
  readonly choiceBias: TensorPtr | undefined;
  /** Matrices that make the rows of experts, and rows of the model's length of their sum. */
  readonly latent: { readonly down: TensorPtr; readonly up: TensorPtr } | undefined;
  /** The network that computes for every token. */
  readonly shared: NetworkWeights | undefined;
  /** F32 `[embedding]`: its product with a row, after a sigmoid, multiplies the row's result of `shared`. */
  readonly sharedGate: TensorPtr | undefined;
}

export interface ExpertBiases {
  /** F32 `[experts]` */
  readonly router: TensorPtr;
  /** F32 `[outputs, experts]` */
  readonly gate: TensorPtr;
  readonly up: TensorPtr;
  readonly down: TensorPtr;
}

export function expertWeights(tensors: LayerTensors, config: ModelConfig, experts: ExpertConfig): ExpertWeights {
  const { hasChoiceBias, hasSharedGate, sharedLength, latentLength, hasFusedGate, hasResultScale } = experts;
  return {
    biases: config.hasExpertBias ? biases(tensors) : undefined,
    choiceBias: hasChoiceBias === true ? tensors.vector('exp_probs_b.bias') : undefined,
    shared: sharedLength === undefined ? undefined : networkWeights(tensors, config, '_shexp'),
    router: tensors.router('ffn_gate_inp.weight'),
    sharedGate: hasSharedGate === true ? tensors.vector('ffn_gate_inp_shexp.weight') : undefined,
    latent:
      latentLength === undefined
        ? undefined
        : { down: tensors.matrix('ffn_latent_down.weight'), up: tensors.matrix('ffn_latent_up.weight') },
    ...(hasFusedGate === true
      ? { gate: 'in up' as const, up: tensors.experts('ffn_gate_up_exps.weight') }
      : {
          gate: config.hasNetworkGate ? tensors.experts('ffn_gate_exps.weight') : undefined,
          up: tensors.experts('ffn_up_exps.weight'),
        }),
    scale: hasResultScale === true ? tensors.vector('ffn_down_exps.scale') : undefined,
    down: tensors.experts('ffn_down_exps.weight'),
  };
}

const biases = (tensors: LayerTensors): ExpertBiases => ({
  router: tensors.vector('ffn_gate_inp.bias'),
  gate: tensors.vector('ffn_gate_exps.bias'),
  up: tensors.vector('ffn_up_exps.bias'),
  down: tensors.vector('ffn_down_exps.bias'),
});

/** The smallest sum of a token's weights by which llama.cpp divides: the smallest normal number of F16. */
const smallestSum = 2 ** -14;

/** The tensors that `expertNetwork` and a shared network add, with views and reshapes. */
export const expertNetworkNodes = ({ used }: ExpertConfig): number => 96 + 3 * used;

/** Differences between architectures. */
export interface ExpertVariant {
  /**
   * The weights of the chosen experts: their shares of the sum of their probabilities (the default), or the softmax of
   * their scores.
   */
  readonly weights?: 'shares' | 'softmax of the chosen';
  /** Default: SwiGLU. */
  readonly network?: 'SwiGLU' | 'clamped SwiGLU' | 'GEGLU';
  /** What the router multiplies, of the shape of h; default: h. */
  readonly routed?: TensorPtr;
}

/** Of clamped SwiGLU, as in llama.cpp. */
const clampedAlpha = 1.702;
const clampedLimit = 7;

interface Parts {
  readonly graph: GraphBuilder;
  readonly matmuls: Matmuls;
  readonly experts: ExpertConfig;
  readonly variant?: ExpertVariant;
}

/**
 * A mixture of SwiGLU networks, or of networks without a gate. The router gives each expert a score; the experts with the largest scores compute, and
 * their results are added, weighted. Router and experts may have biases. A bias of the choice is not in the weights.
 *
 *   h [n, tokens] -> router -> scores -> top k -> weights [k, tokens]
 *   h -> a shorter row, in some models
 *   h -> gate, up of the chosen experts -> SwiGLU -> down [n, k, tokens] -> times weights -> sum over k
 *
 * A token's result has the same bits whichever tokens share its experts. The router multiplies each token as a single
 * row, because ggml's kernels for F32 and F16 have other bits for several rows, and one bit may choose another expert.
 * Of experts with equal scores, ggml's sort chooses; its choice depends on the token's scores only.
 */
export function expertNetwork(parts: Parts, layer: ExpertWeights, h: TensorPtr): TensorPtr {
  const { graph, matmuls, variant } = parts;
  const tokens = graph.rowCountOf(h);
  const inner = layer.latent === undefined ? h : matmuls.multiply(layer.latent.down, h);
  const { chosen, weights } = route(parts, layer, variant?.routed ?? h);

  const multiply = (matrices: TensorPtr, biases: TensorPtr | undefined, x: TensorPtr): TensorPtr => {
    const product = matmuls.multiplyExperts(matrices, x, chosen);
    return biases === undefined ? product : graph.addChosen(product, biases, chosen);
  };
  const x = graph.reshape3d(inner, graph.columnCountOf(inner), 1, tokens);
  const { gate, up } = gateAndUp(graph, layer, tokens, (matrices, biases) => multiply(matrices, biases, x));
  const down = multiply(layer.down, layer.biases?.down, activate(graph, variant, gate, up));
  const sum = matmuls.addExperts(down, weights);
  return layer.latent === undefined ? sum : matmuls.multiply(layer.latent.up, sum);
}

/** Each F32 `[n, chosen, tokens]`. */
function gateAndUp(
  graph: GraphBuilder,
  layer: ExpertWeights,
  tokens: number,
  multiply: (matrices: TensorPtr, biases: TensorPtr | undefined) => TensorPtr,
): { readonly gate: TensorPtr | undefined; readonly up: TensorPtr } {
  if (layer.gate !== 'in up') {
    const gate = layer.gate === undefined ? undefined : multiply(layer.gate, layer.biases?.gate);
    return { gate, up: multiply(layer.up, layer.biases?.up) };
  }
  const both = multiply(layer.up, layer.biases?.up);
  const n = graph.columnCountOf(both) / 2;
  const [pairBytes, tokenBytes] = [graph.strideOf(both, 1), graph.strideOf(both, 2)];
  const shape = [n, graph.rowCountOf(both), tokens] as const;
  const half = (first: number): TensorPtr =>
    graph.contiguous(graph.view3d(both, shape, [pairBytes, tokenBytes], first * F32.typeSize));
  return { gate: half(0), up: half(n) };
}

function activate(
  graph: GraphBuilder,
  variant: ExpertVariant | undefined,
  gate: TensorPtr | undefined,
  up: TensorPtr,
): TensorPtr {
  if (gate === undefined) return graph.squaredRelu(up);
  if (variant?.network === 'clamped SwiGLU') return graph.clampedSwiglu(gate, up, clampedAlpha, clampedLimit);
  return variant?.network === 'GEGLU' ? graph.geglu(gate, up) : graph.swiglu(gate, up);
}

/** `chosen`: I32 `[used, tokens]`, in descending order of scores. `weights`: F32 of the same shape. */
function route({ graph, experts, variant }: Parts, layer: ExpertWeights, h: TensorPtr) {
  const { count, used } = experts;
  const tokens = graph.rowCountOf(h);
  const ofExperts = graph.multiplySingleRows(layer.router, h);
  const biased = layer.biases === undefined ? ofExperts : graph.add(ofExperts, layer.biases.router);
  const isSoftmaxLast = variant?.weights === 'softmax of the chosen';
  const scores = isSoftmaxLast ? ordered(graph, biased) : probabilitiesOf(graph, experts, biased);
  const choice = layer.choiceBias === undefined ? scores : graph.add(scores, layer.choiceBias);
  const chosen = graph.largest(
    experts.groups === undefined ? choice : ofBestGroups(graph, experts.groups, choice),
    used,
  );
  const ofChosen = (ofAll: TensorPtr): TensorPtr =>
    graph.reshape2d(graph.getRows(graph.reshape3d(ofAll, 1, count, tokens), chosen), used, tokens);
  if (isSoftmaxLast) return { chosen, weights: graph.softMax(ofChosen(scores)) };
  const weights = weightsOf(graph, experts, ofChosen(scores));
  if (layer.scale === undefined) return { chosen, weights };
  const scales = graph.add(graph.filledLike(scores, 0), layer.scale);
  return { chosen, weights: graph.multiply(weights, ofChosen(scales)) };
}

/** Less than every score. Not infinity: see `ordered`. */
const outside = -1e30;

/** The scores of the experts in the chosen groups, and `outside` for all others, F32 `[experts, tokens]`. */
function ofBestGroups(graph: GraphBuilder, { count, used, summed }: ExpertGroups, scores: TensorPtr): TensorPtr {
  const [experts, tokens] = [graph.columnCountOf(scores), graph.rowCountOf(scores)];
  const size = experts / count;
  const grouped = graph.reshape2d(scores, size, count * tokens);
  const best = graph.getRows(graph.reshape3d(scores, 1, size, count * tokens), graph.largest(grouped, summed));
  const sums = graph.sumRows(graph.reshape2d(best, summed, count * tokens));
  const chosen = graph.largest(graph.reshape2d(sums, count, tokens), used);
  const byToken = graph.reshape3d(scores, size, count, tokens);
  const filled = graph.setRows(graph.filledLike(byToken, outside), graph.getRows(byToken, chosen), chosen);
  return ordered(graph, graph.reshape2d(filled, experts, tokens));
}

const probabilitiesOf = (graph: GraphBuilder, { gating }: ExpertConfig, scores: TensorPtr): TensorPtr =>
  gating === 'sigmoid' ? graph.activate('sigmoid', ordered(graph, scores)) : graph.softMax(scores);

/** The weights of a token's experts, of their probabilities, F32 `[used, tokens]`. */
function weightsOf(
  graph: GraphBuilder,
  { dividesBySum = true, weightScale = 1 }: ExpertConfig,
  probabilities: TensorPtr,
): TensorPtr {
  const weights = dividesBySum
    ? graph.divide(probabilities, graph.sumRowsAtLeast(probabilities, smallestSum))
    : probabilities;
  return weightScale === 1 ? weights : graph.scale(weights, weightScale);
}

/**
 * The same scores, but only NaN in a row with NaN or infinity: ggml's sort needs an order, which numbers and NaN together
 * do not have.
 */
const ordered = (graph: GraphBuilder, scores: TensorPtr): TensorPtr =>
  graph.add(scores, graph.scale(graph.sumRows(scores), 0));
