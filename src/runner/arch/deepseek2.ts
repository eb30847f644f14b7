import type { Layer } from './layers.ts';

/**
 * DeepSeek 2 in its Lite shape and with compressed queries: latent attention (`latent-attention.ts`), and a mixture of
 * experts beside a network for every token. The first layers have a single network.
 *
 *   x -> norm -> latent attention -> + x -> norm -> experts + shared network -> + x
 */
export const deepseek2Layer: Layer = (operations, weights, x, attended) => {
  const sum = operations.add(x, attended);
  const h = operations.norm(sum, weights.feedForwardNorm);
  return operations.add(sum, operations.network(weights, h));
};
