import type { ArchitectureLayers } from './layers.ts';
import { residualLayer } from './residual-layer.ts';

/**
 * DeepSeek 2 in its Lite shape and with compressed queries: latent attention (`latent-attention.ts`), and a mixture of
 * experts beside a network for every token. The first layers have a single network.
 */
export const deepseek2: ArchitectureLayers = { layer: residualLayer };
