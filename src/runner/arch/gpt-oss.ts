import type { ArchitectureLayers } from './layers.ts';
import { layerWith } from './residual-layer.ts';

/**
 * GPT-OSS: a mixture of experts with biases. Each head has an attention sink, a score without a value. Every other layer
 * has a sliding window (`ModelConfig.slidingWindow`). The weights of the chosen experts are the softmax of their scores
 * alone, and the SwiGLU networks clamp their values.
 */
export const gptOss: ArchitectureLayers = {
  layer: layerWith((operations, weights, h) =>
    operations.experts(weights, h, { weights: 'softmax of the chosen', network: 'clamped SwiGLU' }),
  ),
};
