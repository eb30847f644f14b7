import { assertDefined } from '../../base/assert.ts';
import type { Layer, Mixer } from './layers.ts';

/**
 * Granite 4: most layers have Mamba-2, the others attention, often without RoPE. The network is dense, or a mixture of
 * experts and perhaps a shared network. Embeddings, attention, logits and what is added to the hidden states have scales.
 *
 *   x -> norm -> Mamba-2 or attention -> * scale + x -> norm -> network -> * scale + x
 */
export const granitehybridMixer: Mixer = (operations, weights, h, states) =>
  operations.mamba(assertDefined(weights.mamba, 'a layer without attention has Mamba-2'), h, states);

export const granitehybridLayer: Layer = (operations, weights, x, attended) => {
  const sum = operations.addScaled(x, attended);
  const h = operations.norm(sum, weights.feedForwardNorm);
  return operations.addScaled(sum, operations.network(weights, h));
};
