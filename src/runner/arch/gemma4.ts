import { assertDefined } from '../../base/assert.ts';
import type { TensorPtr } from '../../ggml/ffi.ts';
import type { LayerOperations } from './layer-operations.ts';
import type { LayerWeights } from './layer-weights.ts';
import type { ArchitectureLayers } from './layers.ts';
import { layerWith } from './residual-layer.ts';

/** The router multiplies the hidden states before the norm of the experts, with a norm of its own. */
function network(operations: LayerOperations, weights: LayerWeights, h: TensorPtr, sum: TensorPtr): TensorPtr {
  const dense = operations.geglu(weights, h);
  const { mixture } = weights;
  if (mixture === undefined) return dense;
  const routed = operations.scaledNorm(sum, mixture.routerScale, 1 / Math.sqrt(operations.embeddingLength));
  const ofExperts = operations.norm(sum, mixture.expertsNorm);
  const experts = operations.experts(weights, ofExperts, { network: 'GEGLU', routed });
  return operations.add(
    operations.norm(dense, mixture.networkPostNorm),
    operations.norm(experts, mixture.expertsPostNorm),
  );
}

const residual = layerWith(network);

/**
 * Gemma 4: as Gemma 3, with norms of values. Heads in layers with a window are smaller and more than in layers with full attention, whose
 * V may be made by the matrix of K. The last layers may read K and V of earlier ones (`ModelConfig.sharedKvFrom`). A layer may have experts
 * beside its network, and its own embedding of each token (`token-inputs.ts`). The result is multiplied by a scalar of the layer.
 *
 *   x -> layer as in Gemma 3 -> gate -> gelu -> times the token's embedding -> projection -> norm -> + -> times the scalar
 */
export const gemma4: ArchitectureLayers = {
  layer: (operations, weights, inputs) => {
    let result = residual(operations, weights, inputs);
    if (weights.tokenInput !== undefined) {
      const input = assertDefined(inputs.tokenInput, 'a layer with per-layer embeddings gets its own');
      result = operations.add(result, operations.gatedTokenInput(weights.tokenInput, result, input));
    }
    return weights.scale === undefined ? result : operations.times(result, weights.scale);
  },
};
