import type { TensorPtr } from '../../ggml/ffi.ts';
import type { LayerOperations } from './layer-operations.ts';
import type { LayerWeights } from './layer-weights.ts';
import type { Layer } from './layers.ts';

/** F32 `[embedding, rows]` -> the same shape. `sum`: h before its norm. */
type Network = (operations: LayerOperations, weights: LayerWeights, h: TensorPtr, sum: TensorPtr) => TensorPtr;

/**
 * The layer of all architectures. Norms that the architecture does not have are left out (`ModelConfig.norms`).
 *
 *   x -> norm -> attention or mixer -> norm -> + x -> norm -> network -> norm -> + x
 */
export const layerWith =
  (network: Network): Layer =>
  (operations, weights, { x, attended }) => {
    const sum = operations.add(x, operations.norm(attended, weights.attentionPostNorm));
    const added = network(operations, weights, operations.norm(sum, weights.feedForwardNorm), sum);
    return operations.add(sum, operations.norm(added, weights.feedForwardPostNorm));
  };

/** With SwiGLU networks or a mixture of them. */
export const residualLayer: Layer = layerWith((operations, weights, h) => operations.network(weights, h));
