import { setImmediate as nextTurn } from 'node:timers/promises';
import type { ComputeDevice } from '../../ggml/device.ts';
import type { TensorPtr } from '../../ggml/ffi.ts';
import { GraphBuilder } from '../../ggml/graph.ts';
import type { GraphKernels } from '../../ggml/graph-kernels.ts';
import type { ModelConfig } from '../../ggml/model-config.ts';
import { F32 } from '../../ggml/types.ts';
import type { AdapterStore } from '../adapters/adapter-store.ts';
import { GraphAdapters } from '../adapters/graph-adapters.ts';
import { type MatmulKernels, Matmuls } from '../matmul/matmuls.ts';
import type { RowRule } from '../matmul/row-rule.ts';

export interface HeadParts {
  readonly device: ComputeDevice;
  readonly config: ModelConfig;
  /** `[embedding, vocab]`. */
  readonly output: TensorPtr;
  readonly kernels: MatmulKernels;
  /** Those of the decoder's graph. */
  readonly operations: GraphKernels | undefined;
  readonly rule: RowRule;
  readonly adapters: AdapterStore;
  /** Turns the products with `output` into logits. */
  logitsOf(graph: GraphBuilder, config: ModelConfig, product: TensorPtr): TensorPtr;
}

/** Rows of logits that exist at one time: with a vocabulary of 150,000 tokens, 10 MB. */
export const ROWS_AT_ONCE = 16;

/** Rows between two turns of the event loop: logprobs of a row take 4 ms with 150,000 tokens. */
const ROWS_PER_TURN = 4;

/**
 * The logits of many hidden states, a few rows at a time, in a graph of its own. All logits of a chunk would take hundreds
 * of megabytes. The bits are those of a row in the decoder's graph.
 */
export class HeadRows {
  readonly #parts: HeadParts;
  readonly #graph: GraphBuilder;

  constructor(parts: HeadParts) {
    this.#parts = parts;
    this.#graph = new GraphBuilder(parts.device, parts.operations);
  }

  /**
   * Calls `visit` with each row of logits, F32 `[vocab]`, in order; the row is valid during the call. `hidden`: F32
   * `[embedding, rows]`, after the last norm. `adapter`: the digest of the rows' adapter. The event loop gets a turn after a few rows.
   */
  async each(
    hidden: Float32Array,
    visit: (index: number, logits: Float32Array) => void,
    adapter?: string,
  ): Promise<void> {
    const { embeddingLength: width } = this.#parts.config;
    const count = hidden.length / width;
    for (let first = 0; first < count; first += ROWS_AT_ONCE) {
      const end = Math.min(first + ROWS_AT_ONCE, count);
      const logits = await this.#compute(hidden.subarray(first * width, end * width), end - first, adapter);
      const vocab = logits.length / (end - first);
      for (let row = first; row < end; row++) {
        if (row > first && row % ROWS_PER_TURN === 0) await nextTurn();
        visit(row, logits.subarray((row - first) * vocab, (row - first + 1) * vocab));
      }
    }
  }

  close(): void {
    this.#graph.close();
  }

  async #compute(hidden: Float32Array, rows: number, adapter: string | undefined): Promise<Float32Array> {
    const { config, device, kernels, output, rule, logitsOf, adapters: store } = this.#parts;
    const graph = this.#graph;
    graph.begin(64);
    const padded = rule(rows);
    const x = graph.input(F32, config.embeddingLength, padded);
    const indices = Int32Array.from({ length: rows }, (_, row) => row);
    const batch = { adapters: adapter === undefined ? [] : [{ digest: adapter, rows: indices, outputs: indices }] };
    const adapters = adapter === undefined ? undefined : new GraphAdapters(graph, store, batch);
    const logits = logitsOf(graph, config, new Matmuls(graph, kernels, adapters).multiply(output, x));
    graph.output(logits);
    graph.allocate();
    graph.write(x, hidden);
    adapters?.writeInputs(batch);
    const padding = new Float32Array((padded - rows) * config.embeddingLength);
    if (padding.length > 0) graph.write(x, padding, hidden.byteLength);
    await graph.compute();
    if (device.kind === 'cpu') return graph.dataOf(logits, Float32Array, rows * config.vocabSize);
    const values = new Float32Array(rows * config.vocabSize);
    graph.read(logits, values);
    return values;
  }
}
