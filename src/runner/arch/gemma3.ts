import { assertDefined } from '../../base/assert.ts';
import type { ArchitectureLayers, Layer } from './layers.ts';

const layer: Layer = (operations, weights, x, attended) => {
  const { attentionPostNorm, feedForwardNorm, feedForwardPostNorm } = weights;
  const sum = operations.add(x, operations.norm(attended, assertDefined(attentionPostNorm, 'Gemma 3 has this norm')));
  const added = operations.geglu(weights, operations.norm(sum, feedForwardNorm));
  return operations.add(sum, operations.norm(added, assertDefined(feedForwardPostNorm, 'Gemma 3 has this norm')));
};

/**
 * Gemma 3: norms before and after attention and the network, norms of q and k per head, and a GeGLU network. Most
 * layers have a sliding window and another base of RoPE (`ModelConfig.slidingWindow`). The embeddings of tokens are
 * multiplied by the square root of their length.
 *
 *   x -> norm -> attention -> norm -> + x -> norm -> GeGLU -> norm -> + x
 */
export const gemma3: ArchitectureLayers = { layer };
