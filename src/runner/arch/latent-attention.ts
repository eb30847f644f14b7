import { assertDefined } from '../../base/assert.ts';
import type { TensorPtr } from '../../ggml/ffi.ts';
import type { GraphBuilder } from '../../ggml/graph.ts';
import type { LatentAttention } from '../../ggml/latent-config.ts';
import type { ModelConfig } from '../../ggml/model-config.ts';
import { F32, I32 } from '../../ggml/types.ts';
import type { Attention, AttentionRows } from '../attention/attention.ts';
import type { Batch } from '../batch.ts';
import type { Matmuls } from '../matmul/matmuls.ts';
import type { GraphRotations, HeadRotation } from '../operations/head-rotation.ts';
import type { LayerTensors } from '../weight-store.ts';
import type { AttentionProjections, QueryPlace, RowPlace } from './attention-projections.ts';
import type { LayerWeights } from './layer-weights.ts';

/** Latent attention. */
export interface LatentWeights {
  /** `[embedding or query rank, elements of the queries of all heads]` */
  readonly query: TensorPtr;
  /** `[embedding, query rank]`, and the norm of its result; undefined if queries are made from the layer's input. */
  readonly queryCompression: { readonly down: TensorPtr; readonly norm: TensorPtr } | undefined;
  /** `[embedding, rank + elements with RoPE]` */
  readonly down: TensorPtr;
  /** `[rank]` */
  readonly norm: TensorPtr;
  /** `[query elements without RoPE, rank, heads]` */
  readonly keyOfHead: TensorPtr;
  /** `[rank, value elements, heads]` */
  readonly valueOfHead: TensorPtr;
  readonly output: TensorPtr;
}

export function latentWeights(tensors: LayerTensors, { queryRank }: LatentAttention): LatentWeights {
  const isCompressed = queryRank !== undefined;
  return {
    query: tensors.matrix(isCompressed ? 'attn_q_b.weight' : 'attn_q.weight'),
    output: tensors.matrix('attn_output.weight'),
    queryCompression: isCompressed
      ? { down: tensors.matrix('attn_q_a.weight'), norm: tensors.vector('attn_q_a_norm.weight') }
      : undefined,
    down: tensors.matrix('attn_kv_a_mqa.weight'),
    norm: tensors.vector('attn_kv_a_norm.weight'),
    keyOfHead: tensors.experts('attn_k_b.weight'),
    valueOfHead: tensors.experts('attn_v_b.weight'),
  };
}

interface LatentParts {
  readonly graph: GraphBuilder;
  readonly config: ModelConfig;
  readonly matmuls: Matmuls;
  readonly latent: LatentAttention;
  readonly attention: Attention;
  readonly headRotation: HeadRotation | undefined;
}

/**
 * Multi-head latent attention in the form that reads the latent vectors themselves. A head's K is its matrix times the
 * latent vector, so the query is multiplied by that matrix instead, once per row. All heads then attend to one row per
 * token, whose first `rank` elements are V too. A head's matrix for V is multiplied by the result.
 *
 *   h -> [c | k] -> norm(c), rope(k) -> row of the pool [rank + ropeLength]
 *   h -> per head [q | p] -> keyOfHead(q), rope(p) -> query [rank + ropeLength]
 *   attention -> per head, first `rank` elements -> valueOfHead -> [heads * valueLength]
 *
 * The matrices of heads are multiplied like the matrices of experts, with every head chosen for every row. These kernels
 * give a row the same bits in any batch.
 */
export class LatentProjections implements AttentionProjections {
  readonly #parts: LatentParts;
  readonly #rotations: GraphRotations | undefined;
  /** I32 `[heads, rows]`: the indices of all heads, for each row. */
  readonly #heads: Readonly<Record<AttentionRows, TensorPtr>>;

  constructor(parts: LatentParts, { paddedRowCount, outputRows }: Batch) {
    this.#parts = parts;
    this.#rotations = parts.headRotation?.of(parts.graph);
    const { graph, config } = parts;
    const { headCount } = config;
    const all = graph.input(I32, headCount, paddedRowCount);
    const firstRows = (count: number): TensorPtr => graph.view2d(all, headCount, count, headCount * I32.typeSize, 0);
    this.#heads = { all, outputs: firstRows(Math.max(1, outputRows.length)) };
  }

  writeInputs(): void {
    const { graph, config } = this.#parts;
    const { all } = this.#heads;
    const count = config.headCount * graph.rowCountOf(all);
    graph.write(
      all,
      Int32Array.from({ length: count }, (_, i) => i % config.headCount),
    );
  }

  /** One row of the pool for each token: F32 `[rank + ropeLength, rows]`. */
  poolRows(weights: LayerWeights, h: TensorPtr, { positions }: RowPlace): readonly TensorPtr[] {
    const { graph, config, matmuls, latent } = this.#parts;
    const { rank, ropeLength } = latent;
    const { down, norm } = latentOf(weights);
    const count = graph.rowCountOf(h);
    const width = rank + ropeLength;
    const rowBytes = width * F32.typeSize;
    const both = matmuls.multiply(down, h, 'several');
    const compressed = graph.view2d(both, rank, count, rowBytes, 0);
    const rotated = graph.view3d(both, [ropeLength, 1, count], [rowBytes, rowBytes], rank * F32.typeSize);
    const normed = graph.reshape3d(graph.rmsNorm(compressed, norm, config.rmsEpsilon), rank, 1, count);
    const joined = graph.concat(normed, this.#rotate(rotated, positions), 'columns');
    return [graph.reshape2d(joined, width, count)];
  }

  attend(weights: LayerWeights, h: TensorPtr, { positions, index, rows }: QueryPlace): TensorPtr {
    const { graph, matmuls, attention } = this.#parts;
    const queries = this.#queries(weights, h, positions, rows);
    const values = this.#values(weights, attention.attend(graph, index, queries, rows), rows);
    return matmuls.multiply(latentOf(weights).output, values);
  }

  /** `[ropeLength, heads, rows]`, also as a view. */
  #rotate(x: TensorPtr, positions: TensorPtr): TensorPtr {
    const { graph, config } = this.#parts;
    const { rope } = config;
    if (this.#rotations === undefined) return graph.rope(x, positions, undefined, rope);
    return this.#rotations.rotate({ x, positions, norm: undefined, rope });
  }

  /** F32 `[rank + ropeLength, heads, rows]`. */
  #queries(weights: LayerWeights, h: TensorPtr, positions: TensorPtr, rows: AttentionRows): TensorPtr {
    const { graph, config, matmuls, latent } = this.#parts;
    const { queryLength, ropeLength } = latent;
    const { headCount } = config;
    const count = graph.rowCountOf(h);
    const headBytes = (queryLength + ropeLength) * F32.typeSize;
    const queries = this.#projectedQueries(weights, h);
    const part = (length: number, skipped: number): TensorPtr =>
      graph.view3d(queries, [length, headCount, count], [headBytes, headCount * headBytes], skipped * F32.typeSize);
    const { keyOfHead } = latentOf(weights);
    const absorbed = matmuls.multiplyExperts(keyOfHead, graph.contiguous(part(queryLength, 0)), this.#heads[rows]);
    return graph.concat(absorbed, this.#rotate(part(ropeLength, queryLength), positions), 'columns');
  }

  /** F32 `[heads * valueLength, rows]`, of the result of attention. */
  #values(weights: LayerWeights, attended: TensorPtr, rows: AttentionRows): TensorPtr {
    const { graph, config, matmuls, latent } = this.#parts;
    const { headCount } = config;
    const { rank, valueLength } = latent;
    const count = graph.rowCountOf(attended);
    const rowBytes = graph.columnCountOf(attended) * F32.typeSize;
    const averages = graph.view3d(attended, [rank, headCount, count], [rowBytes / headCount, rowBytes], 0);
    const { valueOfHead } = latentOf(weights);
    const values = matmuls.multiplyExperts(valueOfHead, graph.contiguous(averages), this.#heads[rows]);
    return graph.reshape2d(values, headCount * valueLength, count);
  }

  /** F32 `[heads * (queryLength + ropeLength), rows]` */
  #projectedQueries(weights: LayerWeights, h: TensorPtr): TensorPtr {
    const { graph, config, matmuls } = this.#parts;
    const { query, queryCompression } = latentOf(weights);
    if (queryCompression === undefined) return matmuls.multiply(query, h, 'several');
    const compressed = matmuls.multiply(queryCompression.down, h, 'several');
    return matmuls.multiply(query, graph.rmsNorm(compressed, queryCompression.norm, config.rmsEpsilon));
  }
}

const latentOf = ({ latent }: LayerWeights): LatentWeights => assertDefined(latent, 'a layer with latent attention');
