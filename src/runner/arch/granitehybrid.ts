import type { ArchitectureLayers } from './layers.ts';
import { residualLayer } from './residual-layer.ts';

/**
 * Granite 4: most layers have Mamba-2, the others attention, often without RoPE. The network is dense, or a mixture of
 * experts and perhaps a shared network. The file has an embedding, an attention and a residual multiplier, and a logits scale.
 */
export const granitehybrid: ArchitectureLayers = {
  layer: residualLayer,
  mixer: (operations, weights, h, states) => operations.mamba(weights, h, states),
};
