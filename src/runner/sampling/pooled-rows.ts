import { assert } from '../../base/assert.ts';
import type { ComputeDevice } from '../../ggml/device.ts';
import type { TensorPtr } from '../../ggml/ffi.ts';
import { GraphBuilder } from '../../ggml/graph.ts';
import type { GraphKernels } from '../../ggml/graph-kernels.ts';
import type { ModelConfig } from '../../ggml/model-config.ts';
import type { PooledHead } from '../../ggml/pooled-head.ts';
import { F32 } from '../../ggml/types.ts';
import type { PooledLayer } from '../weights.ts';

export interface PooledParts {
  readonly device: ComputeDevice;
  readonly config: ModelConfig;
  /** Those of the decoder's graph. */
  readonly operations: GraphKernels | undefined;
  readonly head: PooledHead;
  readonly layers: readonly PooledLayer[];
}

/**
 * Pools the hidden states of prompts and multiplies the results by the model's head, in a graph of its own. Each pooled row is
 * multiplied alone, so that it has the same bits in any batch.
 */
export class PooledRows {
  readonly #parts: PooledParts;
  readonly #graph: GraphBuilder;

  constructor(parts: PooledParts) {
    this.#parts = parts;
    this.#graph = new GraphBuilder(parts.device, parts.operations);
  }

  /** `hidden`: for each prompt, F32 `[embedding, positions]` of the positions that the pooling needs. */
  async of(hidden: readonly Float32Array[]): Promise<Float32Array[]> {
    const { config, head, layers, device } = this.#parts;
    const width = config.embeddingLength;
    const pooled = new Float32Array(hidden.length * width);
    for (const [i, rows] of hidden.entries()) pooled.set(this.#pool(rows), i * width);
    const graph = this.#graph;
    graph.begin(16 + 4 * layers.length);
    const input = graph.input(F32, width, hidden.length);
    let x: TensorPtr = input;
    for (const { weight, bias, activation } of layers) {
      x = graph.multiplySingleRows(weight, x);
      if (bias !== undefined) x = graph.add(x, bias);
      if (activation === 'tanh') x = graph.activate('tanh', x);
    }
    graph.output(x);
    graph.allocate();
    graph.write(input, pooled);
    await graph.compute();
    const values = new Float32Array(hidden.length * head.length);
    if (device.kind === 'cpu') values.set(graph.dataOf(x, Float32Array, values.length));
    else graph.read(x, values);
    return hidden.map((_, i) => values.slice(i * head.length, (i + 1) * head.length));
  }

  close(): void {
    this.#graph.close();
  }

  /** As `Pooler` of the engine: sums are in doubles, one token after the other. */
  #pool(rows: Float32Array): Float32Array {
    const { config, head } = this.#parts;
    const width = config.embeddingLength;
    assert(rows.length > 0 && rows.length % width === 0, 'hidden states of whole positions');
    if (head.pooling === 'cls') return rows.subarray(0, width);
    if (head.pooling === 'last') return rows.subarray(rows.length - width);
    const sum = new Float64Array(width);
    for (let start = 0; start < rows.length; start += width)
      for (let i = 0; i < width; i++) sum[i]! += rows[start + i]!;
    return Float32Array.from(sum, (value) => value / (rows.length / width));
  }
}
