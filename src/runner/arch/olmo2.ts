import type { ArchitectureLayers } from './layers.ts';
import { residualLayer } from './residual-layer.ts';

/**
 * OLMo 2 and 3: norms only after attention and the network, and norms of all queries and of all keys of a token together. In
 * OLMo 3, three of four layers have a sliding window, and only the others a RoPE for long contexts.
 */
export const olmo2: ArchitectureLayers = { layer: residualLayer };
