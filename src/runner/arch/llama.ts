import type { ArchitectureLayers } from './layers.ts';
import { residualLayer } from './residual-layer.ts';

/**
 * Llama, Qwen 2 and Qwen 3: rotary grouped-query attention and a SwiGLU network. Qwen 2 has biases of q, k and v, and
 * Qwen 3 norms of q and k per head. RoPE pairs other elements in Llama than in Qwen.
 */
export const llama: ArchitectureLayers = { layer: residualLayer };
