import type { ArchitectureLayers } from './layers.ts';
import { residualLayer } from './residual-layer.ts';

/**
 * Phi 3, and Phi 4 mini: as Llama, with RoPE in a part of each head. RoPE may have two sets of divisors (LongRoPE), for short and for
 * long contexts. The file has q, k and v in one tensor, and the gate and the up projection (`model-tensors.ts`). Its sliding window is
 * not used, as in llama.cpp.
 */
export const phi3: ArchitectureLayers = { layer: residualLayer };
