import type { TensorPtr } from '../ggml/ffi.ts';
import type { GraphBuilder } from '../ggml/graph.ts';
import type { Q8Product } from './native/q8-product.ts';
import type { RowProduct } from './native/row-product.ts';

/** Kernels of ours for products with matrices, where they are better than ggml's. */
export interface ProductKernels {
  readonly q8?: Q8Product | undefined;
  readonly row?: RowProduct | undefined;
}

/** The products of one graph: each matrix by the kernel that is responsible for it. */
export class Products {
  readonly #graph: GraphBuilder;
  readonly #kernels: ProductKernels;
  /** Rows that were rounded for one matrix and serve others. */
  readonly #rounded = new Map<TensorPtr, TensorPtr>();

  constructor(graph: GraphBuilder, kernels: ProductKernels) {
    this.#graph = graph;
    this.#kernels = kernels;
  }

  /**
   * F32 `[outputs, rows]`. `sharedBy`: x is computed once in the graph, and multiplied by several matrices. (Attention may
   * give the same tensor in each layer.)
   */
  multiply(matrix: TensorPtr, x: TensorPtr, sharedBy: 'one' | 'several' = 'one'): TensorPtr {
    const graph = this.#graph;
    const { q8, row } = this.#kernels;
    const isSingle = graph.rowCountOf(x) === 1;
    if (q8?.has(matrix)) {
      if (isSingle) return q8.multiplyRow(graph, matrix, x);
      const rounded = sharedBy === 'one' ? q8.roundRows(graph, matrix, x) : this.#roundedOf(q8, matrix, x);
      return q8.multiply(graph, matrix, rounded);
    }
    // A single row takes the kernel that gives it the bits it has in company.
    if (isSingle && row?.has(matrix)) return row.multiply(graph, matrix, x);
    return graph.mulMat(matrix, x);
  }

  /** F32 `[inputs, count]`: rows of the matrix itself. */
  takeRows(matrix: TensorPtr, numbers: TensorPtr, count: number): TensorPtr {
    const { q8 } = this.#kernels;
    return q8?.has(matrix) ? q8.takeRows(this.#graph, matrix, numbers, count) : this.#graph.getRows(matrix, numbers);
  }

  #roundedOf(q8: Q8Product, matrix: TensorPtr, x: TensorPtr): TensorPtr {
    let rounded = this.#rounded.get(x);
    if (rounded === undefined) {
      rounded = q8.roundRows(this.#graph, matrix, x);
      this.#rounded.set(x, rounded);
    }
    return rounded;
  }
}
