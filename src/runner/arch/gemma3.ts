import type { ArchitectureLayers } from './layers.ts';
import { layerWith } from './residual-layer.ts';

/**
 * Gemma 3: norms before and after attention and the network, norms of q and k per head, and a GeGLU network. Most
 * layers have a sliding window and another base of RoPE (`ModelConfig.slidingWindow`). The embeddings of tokens are
 * multiplied by the square root of their length.
 */
export const gemma3: ArchitectureLayers = {
  layer: layerWith((operations, weights, h) => operations.geglu(weights, h)),
};
