import { assertDefined } from '../../base/assert.ts';
import type { TensorPtr } from '../../ggml/ffi.ts';
import type { GraphBuilder } from '../../ggml/graph.ts';
import type { ModelConfig } from '../../ggml/model-config.ts';
import { F32 } from '../../ggml/types.ts';
import type { Matmuls } from '../matmul/matmuls.ts';
import type { WeightStore } from '../weight-store.ts';
import type { LayerOperations } from './layer-operations.ts';

/** Weights of the embeddings that each layer has of a token, besides the embedding that the first layer gets. */
export interface TokenInputWeights {
  /** The embedding of the first layer. */
  readonly embedding: TensorPtr;
  /** `[length * layers, vocab]` */
  readonly table: TensorPtr;
  /** `[embedding, length * layers]` */
  readonly projection: TensorPtr;
  /** F32 `[length]` */
  readonly norm: TensorPtr;
}

export const tokenInputWeights = (store: WeightStore): TokenInputWeights => ({
  embedding: store.table('token_embd.weight'),
  table: store.table('per_layer_token_embd.weight'),
  projection: store.matrix('per_layer_model_proj.weight'),
  norm: store.vector('per_layer_proj_norm.weight'),
});

interface Parts {
  readonly graph: GraphBuilder;
  readonly config: ModelConfig;
  readonly operations: LayerOperations;
  readonly matmuls: Matmuls;
  readonly weights: TokenInputWeights;
}

/**
 * Per-layer embeddings of Gemma 4. They depend on tokens alone, so each stage of a pipeline computes them itself.
 *
 *   token -> row of the table, of all layers [length * layers] -> times sqrt(length) ----------+
 *   token -> embedding -> times sqrt(n) -> projection -> / sqrt(n) -> norm of each layer's part -+-> / sqrt(2)
 */
export class TokenInputs {
  readonly #parts: Parts;
  /** F32 `[length * layers, rows]` */
  #ofLayers: TensorPtr | undefined;

  constructor(parts: Parts) {
    this.#parts = parts;
  }

  /** `tokens`: I32 `[rows]`. Called once per graph. */
  compute(tokens: TensorPtr | undefined, rows: number): void {
    const { graph, config, operations, matmuls, weights } = this.#parts;
    const { embeddingLength, embeddingScale, layerCount } = config;
    const ids = assertDefined(tokens, 'the stage reads the tokens');
    const length = this.#length;
    const split = (x: TensorPtr): TensorPtr => graph.reshape3d(x, length, layerCount, rows);
    const embedded = graph.scale(matmuls.takeRows(weights.embedding, ids, rows), embeddingScale);
    const projected = graph.scale(matmuls.multiply(weights.projection, embedded), 1 / Math.sqrt(embeddingLength));
    const taken = graph.scale(matmuls.takeRows(weights.table, ids, rows), Math.sqrt(length));
    const sum = graph.add(operations.norm(split(projected), weights.norm), split(taken));
    this.#ofLayers = graph.reshape2d(graph.scale(sum, 1 / Math.sqrt(2)), length * layerCount, rows);
  }

  /** Of the first rows: F32 `[length, rows]`. */
  ofRows(layer: number, rows: number): TensorPtr {
    return this.#parts.graph.contiguous(this.#partOf(layer, rows));
  }

  /** Of the rows with these indices, I32 `[count]`: F32 `[length, count]`. */
  ofSomeRows(layer: number, indices: TensorPtr): TensorPtr {
    const { graph } = this.#parts;
    return graph.getRows(this.#partOf(layer, graph.rowCountOf(this.#all)), indices);
  }

  #partOf(layer: number, rows: number): TensorPtr {
    const { graph } = this.#parts;
    const length = this.#length;
    return graph.view2d(this.#all, length, rows, graph.strideOf(this.#all, 1), layer * length * F32.typeSize);
  }

  get #all(): TensorPtr {
    return assertDefined(this.#ofLayers, 'the inputs of the layers are computed');
  }

  get #length(): number {
    return assertDefined(this.#parts.config.perLayerLength, 'a model with per-layer embeddings');
  }
}
