import type { ArchitectureLayers } from './layers.ts';
import { residualLayer } from './residual-layer.ts';

/**
 * Qwen 3.5: most layers have a gated delta net, the others attention with norms of q and k per head and a gate for each
 * element. RoPE rotates a part of each head. The network is a SwiGLU network, or a mixture of experts and a shared network
 * with a gate (`qwen35moe`). Qwen3-Next has the same layers; its delta nets have other orders of heads and matrices (`DeltaNetConfig`).
 */
export const qwen35: ArchitectureLayers = {
  layer: residualLayer,
  mixer: (operations, weights, h, states) => operations.deltaNet(weights, h, states),
};
