import { assertDefined } from '../../base/assert.ts';
import type { Layer, Mixer } from './layers.ts';

/**
 * Qwen 3.5: most layers have a gated delta net, the others attention with norms of q and k per head and a gate for each
 * element. RoPE rotates a part of each head. The network is a SwiGLU network, or a mixture of experts and a shared network
 * with a gate (`qwen35moe`).
 *
 *   x -> norm -> delta net or attention -> + x -> norm -> network -> + x
 */
export const qwen35Mixer: Mixer = (operations, weights, h, states) =>
  operations.deltaNet(assertDefined(weights.deltaNet, 'a layer without attention has a delta net'), h, states);

export const qwen35moeLayer: Layer = (operations, weights, x, attended) => {
  const sum = operations.add(x, attended);
  const h = operations.norm(sum, weights.feedForwardNorm);
  return operations.add(sum, operations.network(weights, h));
};
