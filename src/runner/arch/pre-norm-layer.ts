import type { Layer } from './layers.ts';

/**
 * The layer of most architectures.
 *
 *   x -> norm -> attention or mixer -> + x -> norm -> network -> + x
 */
export const preNormLayer: Layer = (operations, weights, x, attended) => {
  const sum = operations.add(x, attended);
  const h = operations.norm(sum, weights.feedForwardNorm);
  return operations.add(sum, operations.network(weights, h));
};
