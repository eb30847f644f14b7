import { assertDefined } from '../../base/assert.ts';
import type { TensorPtr } from '../../ggml/ffi.ts';
import type { GraphBuilder } from '../../ggml/graph.ts';
import type { ModelConfig } from '../../ggml/model-config.ts';
import type { RopeConfig } from '../../ggml/rope-config.ts';
import { F32 } from '../../ggml/types.ts';
import type { Attention } from '../attention/attention.ts';
import type { GraphRotations, HeadRotation } from '../operations/head-rotation.ts';
import type { LayerTensors } from '../weight-store.ts';
import type { AttentionProjections, QueryPlace, RowPlace } from './attention-projections.ts';
import type { LayerOperations } from './layer-operations.ts';
import type { LayerWeights } from './layer-weights.ts';

/** Attention with K and V of each KV head. */
export interface AttentionWeights {
  readonly query: TensorPtr;
  readonly queryBias: TensorPtr | undefined;
  readonly queryNorm: TensorPtr | undefined;
  readonly key: TensorPtr;
  readonly keyBias: TensorPtr | undefined;
  readonly keyNorm: TensorPtr | undefined;
  readonly value: TensorPtr;
  readonly valueBias: TensorPtr | undefined;
  readonly output: TensorPtr;
  readonly outputBias: TensorPtr | undefined;
  /** F32 `[heads]` */
  readonly sinks: TensorPtr | undefined;
}

export function attentionWeights(tensors: LayerTensors, config: ModelConfig): AttentionWeights {
  const { hasQkvBias, hasQkNorm, hasOutputBias, hasSinks } = config;
  const bias = (part: string) => (hasQkvBias ? tensors.vector(`${part}.bias`) : undefined);
  const norm = (part: string) => (hasQkNorm ? tensors.vector(`${part}_norm.weight`) : undefined);
  return {
    query: tensors.matrix('attn_q.weight'),
    queryBias: bias('attn_q'),
    queryNorm: norm('attn_q'),
    key: tensors.matrix('attn_k.weight'),
    keyBias: bias('attn_k'),
    keyNorm: norm('attn_k'),
    value: tensors.matrix('attn_v.weight'),
    valueBias: bias('attn_v'),
    output: tensors.matrix('attn_output.weight'),
    outputBias: hasOutputBias ? tensors.vector('attn_output.bias') : undefined,
    sinks: hasSinks ? tensors.vector('attn_sinks.weight') : undefined,
  };
}

interface GroupedQueryParts {
  readonly graph: GraphBuilder;
  readonly config: ModelConfig;
  readonly operations: LayerOperations;
  readonly attention: Attention;
  readonly ropeFreqs: TensorPtr | undefined;
  readonly headRotation: HeadRotation | undefined;
}

/**
 * Grouped-query attention: each KV head serves several query heads. Architectures may have biases, a norm of each head
 * before RoPE, other RoPE in layers with a window, and a gate of the result.
 *
 *   h -> k -> norm, rope -> row of the pool [KV heads * headDim];  h -> v -> row of the pool
 *   h -> q -> norm, rope -> attention -> times sigmoid(gate) -> output matrix
 */
export class GroupedQueryProjections implements AttentionProjections {
  readonly #parts: GroupedQueryParts;
  readonly #rotations: GraphRotations | undefined;

  constructor(parts: GroupedQueryParts) {
    this.#parts = parts;
    this.#rotations = parts.headRotation?.of(parts.graph, parts.ropeFreqs);
  }

  poolRows(weights: LayerWeights, h: TensorPtr, { positions, window }: RowPlace): readonly TensorPtr[] {
    const { graph, config, operations } = this.#parts;
    const { key, keyBias, keyNorm, value, valueBias } = attentionOf(weights);
    const { headDim, headCountKv } = config;
    const rows = graph.rowCountOf(h);
    const heads = graph.reshape3d(operations.project(key, keyBias, h), headDim, headCountKv, rows);
    const k = this.#rotate(heads, keyNorm, positions, window);
    return [graph.reshape2d(k, headDim * headCountKv, rows), operations.project(value, valueBias, h)];
  }

  attend(weights: LayerWeights, h: TensorPtr, { positions, window, index, rows }: QueryPlace): TensorPtr {
    const { graph, operations, attention } = this.#parts;
    const { query, queryBias, queryNorm, output, outputBias } = attentionOf(weights);
    const { heads, gate } = this.#queriesAndGate(operations.project(query, queryBias, h));
    const attended = attention.attend(graph, index, this.#rotate(heads, queryNorm, positions, window), rows);
    const result = gate === undefined ? attended : graph.multiply(attended, graph.sigmoid(gate));
    return operations.multiplyAndAdd(output, outputBias, result);
  }

  /** `heads`: `[headDim, heads, rows]`. With gated attention, the gate of a head follows its query. */
  #queriesAndGate(projected: TensorPtr): { readonly heads: TensorPtr; readonly gate: TensorPtr | undefined } {
    const { graph, config } = this.#parts;
    const { headDim, headCount, hasGatedAttention } = config;
    const rows = graph.rowCountOf(projected);
    if (!hasGatedAttention) return { heads: graph.reshape3d(projected, headDim, headCount, rows), gate: undefined };
    const bytes = headDim * F32.typeSize;
    const half = (index: number): TensorPtr =>
      graph.view3d(projected, [headDim, headCount, rows], [2 * bytes, 2 * bytes * headCount], index * bytes);
    return { heads: half(0), gate: graph.reshape2d(graph.contiguous(half(1)), headDim * headCount, rows) };
  }

  /** `[headDim, heads, rows]` -> normed per head if the model has norms, and rotated. */
  #rotate(x: TensorPtr, norm: TensorPtr | undefined, positions: TensorPtr, window: number | undefined): TensorPtr {
    const { graph, config, operations, ropeFreqs } = this.#parts;
    const rope = ropeOf(config, window);
    if (this.#rotations !== undefined && rope.mode !== 'none') {
      return this.#rotations.rotate({ x, positions, norm, rope });
    }
    const normed = norm === undefined ? x : operations.norm(x, norm);
    return rope.mode === 'none' ? normed : graph.rope(normed, positions, ropeFreqs, rope);
  }
}

const ropeOf = ({ rope, slidingWindow }: ModelConfig, window: number | undefined): RopeConfig =>
  window !== undefined && slidingWindow !== undefined ? slidingWindow.rope : rope;

const attentionOf = ({ attention }: LayerWeights): AttentionWeights =>
  assertDefined(attention, 'a layer with K and V of each KV head');
