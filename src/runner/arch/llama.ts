import type { Layer } from './layers.ts';

/**
 * Llama, Qwen 2 and Qwen 3: pre-norm blocks of rotary grouped-query attention and a SwiGLU network. Qwen 2 has biases
 * of q, k and v, and Qwen 3 norms of q and k per head. RoPE pairs other elements in Llama than in Qwen.
 *
 *   x -> norm -> attention -> + x -> norm -> SwiGLU -> + x
 */
export const llamaLayer: Layer = (operations, weights, x, attended) => {
  const sum = operations.add(x, attended);
  const h = operations.norm(sum, weights.feedForwardNorm);
  return operations.add(sum, operations.network(weights, h));
};
