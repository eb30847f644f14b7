import type { Layer } from './layers.ts';

/**
 * Qwen 3 with a mixture of experts: Qwen 3's layer, in which a router chooses some of many SwiGLU networks for each
 * token (`expert-network.ts`).
 *
 *   x -> norm -> attention -> + x -> norm -> experts -> + x
 */
export const qwen3moeLayer: Layer = (operations, weights, x, attended) => {
  const sum = operations.add(x, attended);
  const h = operations.norm(sum, weights.feedForwardNorm);
  return operations.add(sum, operations.network(weights, h));
};
