import { assertDefined } from '../../base/assert.ts';
import type { ExpertConfig } from '../../ggml/expert-config.ts';
import type { TensorPtr } from '../../ggml/ffi.ts';
import type { GraphBuilder } from '../../ggml/graph.ts';
import { F32 } from '../../ggml/types.ts';
import type { Matmuls } from '../matmul/matmuls.ts';
import type { LayerWeights } from '../weights.ts';

/** The smallest sum of a token's weights by which llama.cpp divides: the smallest normal number of F16. */
const smallestSum = 2 ** -14;

/** The tensors that `expertNetwork` adds, with views and reshapes. */
export const expertNetworkNodes = ({ used }: ExpertConfig): number => 32 + 3 * used;

/**
 * A mixture of SwiGLU networks. The router gives each expert a probability; the most probable experts compute, and
 * their results are added, weighted by their probabilities as parts of the sum.
 *
 *   h [n, tokens] -> router -> softmax -> top k -> weights [k, tokens]
 *   h -> gate, up of the chosen experts -> SwiGLU -> down [n, k, tokens] -> times weights -> sum over k
 *
 * A token's result has the same bits whichever tokens share its experts. The router multiplies each token as a single
 * row, because ggml's kernels for F32 and F16 have other bits for several rows, and one bit may choose another expert.
 * Of experts with equal probability, ggml's sort chooses; its choice depends on the token's probabilities only.
 */
export function expertNetwork(
  { graph, matmuls, experts }: { graph: GraphBuilder; matmuls: Matmuls; experts: ExpertConfig },
  layer: LayerWeights,
  h: TensorPtr,
): TensorPtr {
  const { count, used } = experts;
  const tokens = graph.rowCountOf(h);
  const router = assertDefined(layer.router, 'a layer of a mixture of experts has a router');
  const width = graph.columnCountOf(h);
  const logits = graph.mulMat(router, graph.reshape3d(h, width, 1, tokens));
  const probabilities = graph.softMax(graph.reshape2d(logits, count, tokens));
  const chosen = graph.largest(probabilities, used);
  const chosenProbabilities = graph.getRows(graph.reshape3d(probabilities, 1, count, tokens), chosen);
  const ofToken = graph.reshape2d(chosenProbabilities, used, tokens);
  const weights = graph.divide(ofToken, graph.sumRowsAtLeast(ofToken, smallestSum));

  const x = graph.reshape3d(h, width, 1, tokens);
  const gate = matmuls.multiplyExperts(layer.gate, x, chosen);
  const up = matmuls.multiplyExperts(layer.up, x, chosen);
  const down = matmuls.multiplyExperts(layer.down, graph.swiglu(gate, up), chosen);
  const weighted = graph.multiply(down, graph.reshape3d(weights, 1, used, tokens));

  const rowBytes = width * F32.typeSize;
  const ofExpert = (k: number): TensorPtr => graph.view2d(weighted, width, tokens, used * rowBytes, k * rowBytes);
  let sum = ofExpert(0);
  for (let k = 1; k < used; k++) sum = graph.add(sum, ofExpert(k));
  return sum;
}
