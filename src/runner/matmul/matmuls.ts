import type { TensorPtr } from '../../ggml/ffi.ts';
import type { GraphBuilder } from '../../ggml/graph.ts';
import { F32 } from '../../ggml/types.ts';
import type { GraphAdapters } from '../adapters/graph-adapters.ts';
import type { RowMatmul } from './row-matmul.ts';
import type { ActivationQuantization } from './tile-kernels.ts';
import type { TiledMatmul } from './tiled-matmul.ts';
import type { TiledMatrix } from './tiled-matrix.ts';
import { type WeightedSum, weightedSumOfGgml } from './weighted-sum.ts';

/** Kvasir's kernels for matmuls, which are used where they are better than ggml's. */
export interface MatmulKernels {
  readonly tiles?: TiledMatmul | undefined;
  readonly row?: RowMatmul | undefined;
  readonly weightedSum?: WeightedSum | undefined;
  /** Matrices, also of experts, of which each row or token is multiplied by itself: `ExactKernels.byRow`. */
  readonly byRow?: ReadonlySet<TensorPtr> | undefined;
}

/** Quantized activations by how they are quantized and by what was quantized. */
const emptyMaps = (): Readonly<Record<ActivationQuantization, Map<TensorPtr, TensorPtr>>> => ({
  none: new Map(),
  'by 32': new Map(),
  'by 32, with sums': new Map(),
  'by 256': new Map(),
});

/** The matmuls of one graph. Chooses the kernel of each matrix. */
export class Matmuls {
  readonly #graph: GraphBuilder;
  readonly #kernels: MatmulKernels;
  /** Undefined: no row has an adapter. */
  readonly #adapters: GraphAdapters | undefined;
  /** Quantized activations that several matrices use. */
  readonly #quantized = emptyMaps();

  /** The same in the order of experts; the values of these activations do not change. */
  readonly #quantizedInOrder = emptyMaps();
  /** By chosen experts: their pairs with tokens in the order of experts. */
  readonly #orders = new Map<TensorPtr, TensorPtr>();

  constructor(graph: GraphBuilder, kernels: MatmulKernels, adapters?: GraphAdapters) {
    this.#graph = graph;
    this.#kernels = kernels;
    this.#adapters = adapters;
  }

  /**
   * F32 `[outputs, rows]`. `sharedBy` is `several` if several matrices are multiplied by the same values of x.
   * (Attention may return the same tensor in each layer, with other values.)
   */
  multiply(matrix: TensorPtr, x: TensorPtr, sharedBy: 'one' | 'several' = 'one'): TensorPtr {
    const product = this.#product(matrix, x, sharedBy);
    return this.#adapters === undefined ? product : this.#adapters.apply(matrix, x, product);
  }

  #product(matrix: TensorPtr, x: TensorPtr, sharedBy: 'one' | 'several'): TensorPtr {
    const graph = this.#graph;
    const { tiles, row, byRow } = this.#kernels;
    const isSingle = graph.rowCountOf(x) === 1;
    const tiled = tiles?.matrix(matrix);
    if (tiled !== undefined) {
      if (isSingle) return tiled.multiplyRow(graph, x);
      return tiled.multiply(graph, sharedBy === 'one' ? tiled.quantizeRows(graph, x) : this.#quantizedFor(tiled, x));
    }
    // This kernel gives a single row the bits that the row has in a batch.
    if (isSingle && row?.has(matrix)) return row.multiply(graph, matrix, x);
    return byRow?.has(matrix) === true ? graph.multiplySingleRows(matrix, x) : graph.mulMat(matrix, x);
  }

  /**
   * F32 `[outputs, chosen, tokens]`: rows of x, `[inputs, chosen or 1, tokens]`, times the matrices `[inputs, outputs,
   * experts]` of the experts that are chosen for the token, I32 `[chosen, tokens]`.
   */
  multiplyExperts(matrices: TensorPtr, x: TensorPtr, chosen: TensorPtr): TensorPtr {
    const graph = this.#graph;
    const tiled = this.#kernels.tiles?.experts(matrices);
    if (tiled === undefined) {
      const isByToken = this.#kernels.byRow?.has(matrices) === true;
      return isByToken ? multiplyByToken(graph, matrices, x, chosen) : graph.mulMatId(matrices, x, chosen);
    }
    const [count, tokens] = [graph.columnCountOf(chosen), graph.rowCountOf(chosen)];
    if (tokens === 1) return this.#byToken(tiled.multiplyToken(graph, x, chosen), count, tokens);
    const order = this.#once(this.#orders, chosen, () => tiled.orderPairs(graph, chosen));
    const quantized = this.#once(this.#quantizedInOrder[tiled.activations], x, () =>
      tiled.quantizeInOrder(graph, x, order, count * tokens),
    );
    return this.#byToken(tiled.multiply(graph, quantized, order), count, tokens);
  }

  /** F32 `[n, tokens]`: the sum of the results of a token's experts, `[n, chosen, tokens]`, times weights `[chosen, tokens]`. */
  addExperts(results: TensorPtr, weights: TensorPtr): TensorPtr {
    const { weightedSum = weightedSumOfGgml } = this.#kernels;
    return weightedSum(this.#graph, results, weights);
  }

  /** F32 `[n, chosen * tokens]` as `[n, chosen, tokens]`. */
  #byToken(pairs: TensorPtr, chosen: number, tokens: number): TensorPtr {
    return this.#graph.reshape3d(pairs, this.#graph.columnCountOf(pairs), chosen, tokens);
  }

  /** F32 `[inputs, count]`: the matrix's rows with these indices. */
  takeRows(matrix: TensorPtr, indices: TensorPtr, count: number): TensorPtr {
    const tiled = this.#kernels.tiles?.matrix(matrix);
    return tiled?.takeRows(this.#graph, indices, count) ?? this.#graph.getRows(matrix, indices);
  }

  #quantizedFor(matrix: TiledMatrix, x: TensorPtr): TensorPtr {
    return this.#once(this.#quantized[matrix.activations], x, () => matrix.quantizeRows(this.#graph, x));
  }

  /** The node that was made for `x`, or a new one. */
  #once(known: Map<TensorPtr, TensorPtr>, x: TensorPtr, make: () => TensorPtr): TensorPtr {
    let made = known.get(x);
    if (made === undefined) {
      made = make();
      known.set(x, made);
    }
    return made;
  }
}

/** The largest number of tensors that a matmul by token has for each token. */
export const nodesPerToken = 5;

/** `multiplyExperts` by ggml, with a matmul for each token: F32 `[outputs, chosen, tokens]`. */
export function multiplyByToken(graph: GraphBuilder, matrices: TensorPtr, x: TensorPtr, chosen: TensorPtr): TensorPtr {
  const [count, tokens] = [graph.columnCountOf(chosen), graph.rowCountOf(chosen)];
  const [inputs, xRows] = [graph.columnCountOf(x), graph.rowCountOf(x)];
  const [rowBytes, xBytes, chosenBytes] = [graph.strideOf(x, 1), graph.strideOf(x, 2), graph.strideOf(chosen, 1)];
  const products = Array.from({ length: tokens }, (_, token) =>
    graph.mulMatId(
      matrices,
      graph.view3d(x, [inputs, xRows, 1], [rowBytes, xBytes], token * xBytes),
      graph.view2d(chosen, count, 1, chosenBytes, token * chosenBytes),
    ),
  );
  const outputs = graph.columnCountOf(products[0]!);
  const canvas = graph.canvas(F32, outputs, count * tokens);
  for (const [token, product] of products.entries())
    graph.placeInto(product, canvas, token * count * outputs * F32.typeSize);
  return graph.reshape3d(canvas, outputs, count, tokens);
}
