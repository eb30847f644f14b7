import { assertDefined } from '../../base/assert.ts';
import type { NetworkKind } from '../../ggml/architectures.ts';
import type { TensorPtr } from '../../ggml/ffi.ts';
import type { LayerOperations } from './layer-operations.ts';
import type { LayerWeights } from './layer-weights.ts';
import type { Layer } from './layers.ts';

/** F32 `[embedding, rows]` -> the same shape. `sum`: h before its norm. */
type Network = (operations: LayerOperations, weights: LayerWeights, h: TensorPtr, sum: TensorPtr) => TensorPtr;

/** A network or a mixture of them, perhaps with a network that computes for every token. */
const networkOrExperts: Network = (operations, weights, h) => operations.network(weights, h);

const networks: Readonly<Record<NetworkKind, Network>> = {
  swiglu: networkOrExperts,
  'squared relu': networkOrExperts,
  'clamped swiglu': (operations, weights, h) =>
    operations.experts(weights, h, { weights: 'softmax of the chosen', network: 'clamped SwiGLU' }),
  geglu: (operations, weights, h, sum) => {
    const dense = operations.geglu(weights, h);
    return weights.mixture === undefined ? dense : withExperts(operations, weights, sum, dense);
  },
};

/** The router multiplies the hidden states before the norm of the experts, with a norm of its own. */
const withExperts = (
  operations: LayerOperations,
  weights: LayerWeights,
  sum: TensorPtr,
  dense: TensorPtr,
): TensorPtr => {
  const mixture = assertDefined(weights.mixture, 'a layer with a network and experts');
  const routed = operations.scaledNorm(sum, mixture.routerScale, 1 / Math.sqrt(operations.embeddingLength));
  const ofExperts = operations.norm(sum, mixture.expertsNorm);
  const experts = operations.experts(weights, ofExperts, { network: 'GEGLU', routed });
  return operations.add(
    operations.norm(dense, mixture.networkPostNorm),
    operations.norm(experts, mixture.expertsPostNorm),
  );
};

/**
 * The layer of most architectures. Norms that the architecture does not have are left out (`ModelConfig.norms`). A layer of Gemma 4 may
 * also have its own embedding of each token (`token-inputs.ts`), and a scalar that multiplies the result.
 *
 *   x -> norm -> attention or mixer -> norm -> + x -> norm -> network -> norm -> + x
 *   -> gate -> gelu -> times the token's embedding -> projection -> norm -> + -> times the scalar
 */
export const residualLayer = (kind: NetworkKind): Layer => {
  const network = networks[kind];
  return (operations, weights, { x, attended, tokenInput }) => {
    const sum = operations.add(x, operations.norm(attended, weights.attentionPostNorm));
    const added = network(operations, weights, operations.norm(sum, weights.feedForwardNorm), sum);
    let result = operations.add(sum, operations.norm(added, weights.feedForwardPostNorm));
    if (weights.tokenInput !== undefined) {
      const input = assertDefined(tokenInput, 'a layer with per-layer embeddings gets its own');
      result = operations.add(result, operations.gatedTokenInput(weights.tokenInput, result, input));
    }
    return weights.scale === undefined ? result : operations.times(result, weights.scale);
  };
};

/** A layer that is attention, a mixer or a network alone (`ModelConfig.networkLayers`). */
export const singlePartLayer: Layer = (operations, weights, { x, attended }) => {
  const isNetwork = weights.network !== undefined || weights.experts !== undefined;
  return operations.add(x, isNetwork ? operations.network(weights, attended) : attended);
};
