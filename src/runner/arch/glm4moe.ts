import type { ArchitectureLayers } from './layers.ts';
import { residualLayer } from './residual-layer.ts';

/**
 * GLM 4.5 and 4.6: a mixture of experts beside a network for every token. The first layers have a single network. RoPE rotates a part
 * of each head, and q, k and v have biases. Large models have norms of q and k per head.
 */
export const glm4moe: ArchitectureLayers = { layer: residualLayer };
