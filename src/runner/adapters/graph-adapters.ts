import { assertDefined } from '../../base/assert.ts';
import { nullPtr, type TensorPtr } from '../../ggml/ffi.ts';
import type { GraphBuilder } from '../../ggml/graph.ts';
import { I32 } from '../../ggml/types.ts';
import type { AttentionRows } from '../attention/attention.ts';
import type { Batch, BatchAdapter } from '../batch.ts';
import type { AdapterStore } from './adapter-store.ts';
import type { LoadedAdapter, LoadedPair } from './loaded-adapter.ts';

/** The largest number of tensors that a pair adds to a graph. */
const nodesPerPair = 12;

interface RowsOfAdapter {
  readonly adapter: LoadedAdapter;
  /** I32: the indices of its rows among all rows, and among the sampled rows; undefined: it has none there. */
  readonly all: TensorPtr;
  readonly outputs: TensorPtr | undefined;
}

/**
 * The LoRA adapters of one graph. A row gets the addition of its request's adapter, computed as a single row. So it has the same bits in
 * any batch, and rows without an adapter are not touched.
 *
 *   x [inputs, rows] -> the adapter's rows -> down [rank, n] -> up [outputs, n] -> + the same rows of the product, in place
 */
export class GraphAdapters {
  /** Which rows the next matmuls have. */
  rows: AttentionRows = 'all';
  readonly #graph: GraphBuilder;
  readonly #store: AdapterStore;
  readonly #adapters: readonly RowsOfAdapter[];

  /** The step's requests with adapters that the store does not have are not in the batch. */
  constructor(graph: GraphBuilder, store: AdapterStore, batch: Pick<Batch, 'adapters'>) {
    this.#graph = graph;
    this.#store = store;
    this.#adapters = batch.adapters.map(({ digest, rows, outputs }) => ({
      adapter: loadedIn(store, digest),
      all: graph.input(I32, rows.length),
      outputs: outputs.length === 0 ? undefined : graph.input(I32, outputs.length),
    }));
  }

  /** The tensors that the adapters of a batch add to its graph. */
  static nodeCount(store: AdapterStore, { adapters }: Batch): number {
    return adapters.reduce((sum, { digest }) => sum + 2 + nodesPerPair * (1 + loadedIn(store, digest).pairs.size), 0);
  }

  /** Whether a graph of another batch with as many rows serves this one too. */
  fits({ adapters }: Batch): boolean {
    if (adapters.length !== this.#adapters.length) return false;
    for (let i = 0; i < adapters.length; i++) if (!this.#isSame(this.#adapters[i]!, adapters[i]!)) return false;
    return true;
  }

  writeInputs({ adapters }: Pick<Batch, 'adapters'>): void {
    for (let i = 0; i < adapters.length; i++) {
      const { all, outputs } = this.#adapters[i]!;
      this.#graph.write(all, adapters[i]!.rows);
      if (outputs !== undefined) this.#graph.write(outputs, adapters[i]!.outputs);
    }
  }

  /** `product`, `[outputs, rows]`, of the model's matrix with x, plus the additions of the adapters. */
  apply(matrix: TensorPtr, x: TensorPtr, product: TensorPtr): TensorPtr {
    let result = product;
    for (const { adapter, ...rowsOf } of this.#adapters) {
      const pair = adapter.pairs.get(matrix);
      const rows = rowsOf[this.rows];
      if (pair === undefined || rows === undefined) continue;
      result = this.#add(result, pair, x, rows);
    }
    return result;
  }

  /** `embedded`, `[embedding, rows]`, of the tokens I32 `[rows]`, plus the additions of the adapters. */
  embed(tokens: TensorPtr, embedded: TensorPtr): TensorPtr {
    const graph = this.#graph;
    let result = embedded;
    for (const { adapter, all } of this.#adapters) {
      const { embedding } = adapter;
      if (embedding === undefined) continue;
      const low = graph.getRows(graph.getRows(embedding.down, tokens), all);
      result = this.#addUp(result, embedding, low, all);
    }
    return result;
  }

  /** Up(down(x)), for some rows. */
  #add(product: TensorPtr, pair: LoadedPair, x: TensorPtr, rows: TensorPtr): TensorPtr {
    const graph = this.#graph;
    const { kernels } = this.#store;
    const { down, rank } = pair;
    if (kernels === undefined)
      return this.#addUp(product, pair, graph.multiplySingleRows(down, graph.getRows(x, rows)), rows);
    const count = graph.columnCountOf(rows);
    const low = graph.custom([down, x, rows], rank, count, kernels.multiplyRows, nullPtr(), kernels);
    return this.#addUp(product, pair, low, rows);
  }

  /** Up(low), `low` of these rows. It changes `product`, so nothing that comes later may need its old values. */
  #addUp(product: TensorPtr, { up }: LoadedPair, low: TensorPtr, rows: TensorPtr): TensorPtr {
    const graph = this.#graph;
    const { kernels } = this.#store;
    if (kernels === undefined) {
      const added = graph.multiplySingleRows(up, low);
      return graph.setRows(product, graph.add(graph.getRows(product, rows), added), rows);
    }
    // Without a result. It comes before all later nodes because the graph is expanded here.
    graph.expand(graph.custom([up, low, product, rows], 1, 1, kernels.addToRows, nullPtr(), kernels));
    return product;
  }

  /** An adapter that was loaded again has other tensors. */
  #isSame({ adapter, all, outputs }: RowsOfAdapter, other: BatchAdapter): boolean {
    if (this.#store.get(other.digest) !== adapter) return false;
    return this.#count(all) === other.rows.length && this.#count(outputs) === other.outputs.length;
  }

  #count(rows: TensorPtr | undefined): number {
    return rows === undefined ? 0 : this.#graph.columnCountOf(rows);
  }
}

const loadedIn = (store: AdapterStore, digest: string): LoadedAdapter =>
  assertDefined(store.get(digest), 'a batch has only adapters that the runner has');
