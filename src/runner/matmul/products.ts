import type { TensorPtr } from '../../ggml/ffi.ts';
import type { GraphBuilder } from '../../ggml/graph.ts';
import type { RowProduct } from './row-product.ts';
import type { Rounding, TiledMatrix, TileProducts } from './tile-product.ts';

/** Kernels of ours for products with matrices, where they are better than ggml's. */
export interface ProductKernels {
  readonly tiles?: TileProducts | undefined;
  readonly row?: RowProduct | undefined;
}

/** The products of one graph: each matrix by the kernel that is responsible for it. */
export class Products {
  readonly #graph: GraphBuilder;
  readonly #kernels: ProductKernels;
  /** Rows that were rounded for one matrix and serve others. */
  readonly #rounded: Readonly<Record<Rounding, Map<TensorPtr, TensorPtr>>> = {
    none: new Map(),
    'by 32': new Map(),
    'by 256': new Map(),
  };

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
    const { tiles, row } = this.#kernels;
    const isSingle = graph.rowCountOf(x) === 1;
    const tiled = tiles?.matrix(matrix);
    if (tiled !== undefined) {
      if (isSingle) return tiled.multiplyRow(graph, x);
      return tiled.multiply(graph, sharedBy === 'one' ? tiled.roundRows(graph, x) : this.#roundedFor(tiled, x));
    }
    // A single row takes the kernel that gives it the bits it has in company.
    if (isSingle && row?.has(matrix)) return row.multiply(graph, matrix, x);
    return graph.mulMat(matrix, x);
  }

  /** F32 `[inputs, count]`: rows of the matrix itself. */
  takeRows(matrix: TensorPtr, numbers: TensorPtr, count: number): TensorPtr {
    const tiled = this.#kernels.tiles?.matrix(matrix);
    return tiled?.takeRows(this.#graph, numbers, count) ?? this.#graph.getRows(matrix, numbers);
  }

  #roundedFor(matrix: TiledMatrix, x: TensorPtr): TensorPtr {
    const known = this.#rounded[matrix.rounding];
    let rounded = known.get(x);
    if (rounded === undefined) {
      rounded = matrix.roundRows(this.#graph, x);
      known.set(x, rounded);
    }
    return rounded;
  }
}
