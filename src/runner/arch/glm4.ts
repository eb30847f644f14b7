import type { ArchitectureLayers } from './layers.ts';
import { residualLayer } from './residual-layer.ts';

/**
 * GLM 4 (9B and 32B of 2025): norms before and after attention and the network. RoPE rotates a part of each head. The file has the
 * gate and the up projection of a network in one tensor (`model-tensors.ts`).
 */
export const glm4: ArchitectureLayers = { layer: residualLayer };
