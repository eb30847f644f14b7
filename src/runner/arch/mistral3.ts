import type { ArchitectureLayers } from './layers.ts';
import { residualLayer } from './residual-layer.ts';

/**
 * Mistral 3 and Ministral 3: as Llama, with YaRN. Queries after the original context are multiplied by a factor that grows with the
 * position (`ModelConfig.temperature`).
 */
export const mistral3: ArchitectureLayers = { layer: residualLayer };
