import { assertDefined } from '../../base/assert.ts';
import type { Mixer } from './layers.ts';

/**
 * LFM 2: most layers have a gated convolution over the last tokens, the others attention with norms of q and k per
 * head. Layers with attention may have a sliding window (`ModelConfig.slidingWindow`). The rest of a layer is Llama's.
 *
 *   x -> norm -> convolution or attention -> + x -> norm -> SwiGLU -> + x
 */
export const lfm2Mixer: Mixer = (operations, weights, h, states) => {
  const convolution = assertDefined(weights.shortConvolution, 'a layer without attention has a convolution');
  return operations.shortConvolution(convolution, h, states);
};
