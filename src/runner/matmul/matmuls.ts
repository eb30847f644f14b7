import type { TensorPtr } from '../../ggml/ffi.ts';
import type { GraphBuilder } from '../../ggml/graph.ts';
import type { RowMatmul } from './row-matmul.ts';
import type { ActivationQuantization, TiledMatmul, TiledMatrix } from './tiled-matmul.ts';

/** Kvasir's kernels for matmuls, which are used where they are better than ggml's. */
export interface MatmulKernels {
  readonly tiles?: TiledMatmul | undefined;
  readonly row?: RowMatmul | undefined;
}

/** The matmuls of one graph. Chooses the kernel of each matrix. */
export class Matmuls {
  readonly #graph: GraphBuilder;
  readonly #kernels: MatmulKernels;
  /** Quantized activations that several matrices use. */
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
   * F32 `[outputs, rows]`. `sharedBy` is `several` if several matrices are multiplied by the same values of x.
   * (Attention may return the same tensor in each layer, with other values.)
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
    // This kernel gives a single row the bits that the row has in a batch.
    if (isSingle && row?.has(matrix)) return row.multiply(graph, matrix, x);
    return graph.mulMat(matrix, x);
  }

  /**
   * F32 `[outputs, chosen, tokens]`: rows of x, `[inputs, chosen or 1, tokens]`, times the matrices `[inputs, outputs,
   * experts]` of the experts that are chosen for the token, I32 `[chosen, tokens]`.
   */
  multiplyExperts(matrices: TensorPtr, x: TensorPtr, chosen: TensorPtr): TensorPtr {
    return this.#graph.mulMatId(matrices, x, chosen);
  }

  /** F32 `[inputs, count]`: the matrix's rows with these indices. */
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
