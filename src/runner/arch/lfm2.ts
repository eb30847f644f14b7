import type { ArchitectureLayers } from './layers.ts';
import { residualLayer } from './residual-layer.ts';

/**
 * LFM 2: most layers have a gated convolution over the last tokens, the others attention with norms of q and k per
 * head. Layers with attention may have a sliding window (`ModelConfig.slidingWindow`). The network is a SwiGLU network,
 * or after the first layers a mixture of experts (`lfm2moe`).
 */
export const lfm2: ArchitectureLayers = {
  layer: residualLayer,
  mixer: (operations, weights, h, states) => operations.shortConvolution(weights, h, states),
};
