import type { TensorPtr } from '../../ggml/ffi.ts';
import type { GraphBuilder } from '../../ggml/graph.ts';
import { TiledWeights } from './tiled-weights.ts';

/**
 * The matrices of a layer's experts, `[inputs, outputs, experts]`, laid out as tiles. The operations give what
 * `ggml_mul_mat_id` gives, F32 `[outputs, chosen, tokens]`, with the bits of our matmul with the expert's matrix alone.
 */
export class TiledExperts extends TiledWeights {
  /**
   * Sorts pairs of a token and an expert by expert: chosen experts, I32 `[chosen, tokens]`, become an `order` of
   * expert-operations.h, which all matrices with as many experts may share.
   */
  orderPairs(graph: GraphBuilder, chosen: TensorPtr): TensorPtr {
    const pairs = graph.columnCountOf(chosen) * graph.rowCountOf(chosen);
    const width = 2 * pairs + this.shape.experts + 1;
    return this.node(graph, [chosen], width, 1, this.kernel.orderPairs);
  }

  /**
   * Quantizes x, F32 `[inputs, chosen or 1, tokens]`, for `multiply`, in the order of experts. Matrices with equal inputs
   * and equal quantization may share it.
   */
  quantizeInOrder(graph: GraphBuilder, x: TensorPtr, order: TensorPtr, pairs: number): TensorPtr {
    return this.node(graph, [x, order], this.quantizedWidth, pairs, this.kernel.quantizeInOrder);
  }

  /** F32 `[outputs, pairs]`, of the result of `quantizeInOrder`. */
  multiply(graph: GraphBuilder, quantized: TensorPtr, order: TensorPtr): TensorPtr {
    const pairs = graph.rowCountOf(quantized);
    return this.node(graph, [quantized, order], this.shape.outputs, pairs, this.kernel.multiplyExperts);
  }

  /** F32 `[outputs, chosen]`, of one token: x `[inputs, chosen or 1, 1]`, and its chosen experts. */
  multiplyToken(graph: GraphBuilder, x: TensorPtr, chosen: TensorPtr): TensorPtr {
    const count = graph.columnCountOf(chosen);
    return this.node(graph, [x, chosen], this.shape.outputs, count, this.kernel.multiplyExpertsOfToken);
  }
}
