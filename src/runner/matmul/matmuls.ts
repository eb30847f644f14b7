import type { TensorPtr } from '../../ggml/ffi.ts';
import type { GraphBuilder } from '../../ggml/graph.ts';
import type { RowMatmul } from './row-matmul.ts';
import type { ActivationQuantization, TiledMatmul, TiledMatrix } from './tiled-matmul.ts';

/** Kernels of ours for products with matrices, where they are better than ggml's. */
export interface MatmulKernels {
  readonly tiles?: TiledMatmul | undefined;
  readonly row?: RowMatmul | undefined;
}

/** The products of one graph: each matrix by the kernel that is responsible for it. */
export class Matmuls {
  readonly #graph: GraphBuilder;
  readonly #kernels: MatmulKernels;
  /** Rows that were rounded for one matrix and serve others. */
  readonly #quantized: Readonly<Record<ActivationQuantization, Map<TensorPtr, TensorPtr>>> = {
    none: new Map(),
    'by 32': new Map(),
    'by 256': new Map(),
  };

  constructor(graph: GraphBuilder, kernels: MatmulKernels) {
    this.#graph = graph;
    this.#kernels = kernels;
  }

  /**
   * F32 `[outputs, rows]`. `sharedBy`: x is computed once in the graph, and multiplied by several matrices. (Attention may
   * give the same tensor in each layer.)
   */
  multiply(matrix: TensorPtr, x: TensorPtr, sharedBy: 'one' | 'several' = 'one'): TensorPtr {
    const graph = this.#graph;
    const { tiles, row } = this.#kernels;
    const isSingle = graph.rowCountOf(x) === 1;
    const tiled = tiles?.matrix(matrix);
    if (tiled !== undefined) {
      if (isSingle) return tiled.multiplyRow(graph, x);
      return tiled.multiply(graph, sharedBy === 'one' ? tiled.quantizeRows(graph, x) : this.#quantizedFor(tiled, x));
    }
    // A single row takes the kernel that gives it the bits it has in company.
    if (isSingle && row?.has(matrix)) return row.multiply(graph, matrix, x);
    return graph.mulMat(matrix, x);
  }

  /** F32 `[inputs, count]`: rows of the matrix itself. */
  takeRows(matrix: TensorPtr, indices: TensorPtr, count: number): TensorPtr {
    const tiled = this.#kernels.tiles?.matrix(matrix);
    return tiled?.takeRows(this.#graph, indices, count) ?? this.#graph.getRows(matrix, indices);
  }

  #quantizedFor(matrix: TiledMatrix, x: TensorPtr): TensorPtr {
    const known = this.#quantized[matrix.activations];
    let quantized = known.get(x);
    if (quantized === undefined) {
      quantized = matrix.quantizeRows(this.#graph, x);
      known.set(x, quantized);
    }
    return quantized;
  }
}
