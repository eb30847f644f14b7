import type { ArchitectureLayers } from './layers.ts';
import { residualLayer } from './residual-layer.ts';

/**
 * Qwen 3 with a mixture of experts: a router chooses some of many SwiGLU networks for each token (`expert-network.ts`).
 */
export const qwen3moe: ArchitectureLayers = { layer: residualLayer };
