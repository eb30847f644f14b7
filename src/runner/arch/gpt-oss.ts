import type { ArchitectureLayers, Layer } from './layers.ts';

const layer: Layer = (operations, weights, x, attended) => {
  const sum = operations.add(x, attended);
  const h = operations.norm(sum, weights.feedForwardNorm);
  const added = operations.experts(weights, h, { weights: 'softmax of the chosen', network: 'clamped SwiGLU' });
  return operations.add(sum, added);
};

/**
 * GPT-OSS: a mixture of experts with biases. Each head has an attention sink, a score without a value. Every other layer
 * has a sliding window (`ModelConfig.slidingWindow`). The weights of the chosen experts are the softmax of their scores
 * alone, and the SwiGLU networks clamp their values.
 *
 *   x -> norm -> attention -> + x -> norm -> experts -> + x
 */
export const gptOss: ArchitectureLayers = { layer };
