import type { TensorPtr } from '../../ggml/ffi.ts';
import type { GraphBuilder } from '../../ggml/graph.ts';
import { TiledWeights } from './tiled-weights.ts';

/** A matrix that is laid out as tiles. */
export class TiledMatrix extends TiledWeights {
  /**
   * Quantizes x, F32 `[inputs, rows]`, for `multiply`. Matrices with equal inputs and equal quantization may share it.
   */
  quantizeRows(graph: GraphBuilder, x: TensorPtr): TensorPtr {
    return this.node(graph, [x], this.quantizedWidth, graph.rowCountOf(x), this.kernel.quantizeRows);
  }

  /** F32 `[outputs, rows]`, of the result of `quantizeRows`. */
  multiply(graph: GraphBuilder, quantized: TensorPtr): TensorPtr {
    return this.node(graph, [quantized], this.shape.outputs, graph.rowCountOf(quantized), this.kernel.multiply);
  }

  /** F32 `[outputs, 1]`, of x `[inputs, 1]`. */
  multiplyRow(graph: GraphBuilder, x: TensorPtr): TensorPtr {
    return this.node(graph, [x], this.shape.outputs, 1, this.kernel.multiplyRow);
  }

  /** F32 `[inputs, rows]`: the matrix's rows with these indices, I32 `[rows]`. */
  takeRows(graph: GraphBuilder, indices: TensorPtr, count: number): TensorPtr {
    return this.node(graph, [indices], this.shape.inputs, count, this.kernel.takeRows);
  }
}
