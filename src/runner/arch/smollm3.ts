import type { ArchitectureLayers } from './layers.ts';
import { residualLayer } from './residual-layer.ts';

/**
 * SmolLM 3: as Llama, but each fourth layer has no RoPE.
 */
export const smollm3: ArchitectureLayers = { layer: residualLayer };
