import { assertDefined } from '../../base/assert.ts';
import type { Mixer } from './layers.ts';

/**
 * LFM 2: most layers have a gated convolution over the last tokens, the others attention with norms of q and k per
 * head. The rest of a layer is Llama's. The state of a convolution is its input of the last tokens.
 *
 *   h -> in projection -> b, c, x
 *   c * convolution(b * x) -> out projection
 */
export const lfm2Mixer: Mixer = (operations, weights, h, states) => {
  const { kernel, inProjection, outProjection } = assertDefined(
    weights.shortConvolution,
    'a layer without attention has a convolution',
  );
  const [b, c, x] = operations.thirds(operations.project(inProjection, undefined, h));
  const convolved = operations.convolution(kernel, operations.multiply(b, x), states);
  return operations.project(outProjection, undefined, operations.multiply(c, convolved));
};
