import { assertDefined } from '../../base/assert.ts';
import { traitsOf } from '../../ggml/architectures.ts';
import type { TensorPtr } from '../../ggml/ffi.ts';
import type { GraphBuilder } from '../../ggml/graph.ts';
import { type HeadShape, headsOfLayer } from '../../ggml/layer-shapes.ts';
import type { ModelConfig } from '../../ggml/model-config.ts';
import { hasDivisors, type RopeConfig, ropeOfLayer } from '../../ggml/rope-config.ts';
import { F32 } from '../../ggml/types.ts';
import type { Attention, AttentionRows } from '../attention/attention.ts';
import type { Batch } from '../batch.ts';
import type { GraphRotations, HeadRotation } from '../operations/head-rotation.ts';
import { temperaturesOf } from '../temperature.ts';
import type { LayerTensors } from '../weight-store.ts';
import type { AttentionProjections, QueryPlace, RowPlace } from './attention-projections.ts';
import type { LayerOperations } from './layer-operations.ts';
import type { LayerWeights } from './layer-weights.ts';

/** Attention with K and V of each KV head. */
export interface AttentionWeights {
  readonly query: TensorPtr;
  readonly queryBias: TensorPtr | undefined;
  readonly queryNorm: TensorPtr | undefined;
  /** Undefined: the layer reads K and V of an earlier layer. */
  readonly keyValue: KeyValueWeights | undefined;
  readonly output: TensorPtr;
  readonly outputBias: TensorPtr | undefined;
  /** F32 `[heads]` */
  readonly sinks: TensorPtr | undefined;
  /** Of the layer; undefined: nothing is rotated. */
  readonly rope: RopeConfig | undefined;
  /** Of the layer. */
  readonly heads: HeadShape;
}

interface KeyValueWeights {
  readonly key: TensorPtr;
  readonly keyBias: TensorPtr | undefined;
  readonly keyNorm: TensorPtr | undefined;
  /** Undefined: V is the product with `key`, before the norm. */
  readonly value: TensorPtr | undefined;
  readonly valueBias: TensorPtr | undefined;
  /** An RMS norm of each head of V, without weights. */
  readonly hasValueNorm: boolean;
}

export function attentionWeights(tensors: LayerTensors, config: ModelConfig, layer: number): AttentionWeights {
  const { architecture, hasQkvBias, qkNorm, hasOutputBias, hasSinks, sharedKvFrom, keyIsValue } = config;
  const bias = (part: string) => (hasQkvBias ? tensors.vector(`${part}.bias`) : undefined);
  const norm = (part: string) => (qkNorm !== 'none' ? tensors.vector(`${part}_norm.weight`) : undefined);
  const keyValue = (): KeyValueWeights => ({
    key: tensors.matrix('attn_k.weight'),
    keyBias: bias('attn_k'),
    keyNorm: norm('attn_k'),
    value: keyIsValue?.includes(layer) === true ? undefined : tensors.matrix('attn_v.weight'),
    valueBias: bias('attn_v'),
    hasValueNorm: traitsOf(architecture).hasValueNorm === true,
  });
  return {
    query: tensors.matrix('attn_q.weight'),
    queryBias: bias('attn_q'),
    queryNorm: norm('attn_q'),
    keyValue: sharedKvFrom !== undefined && layer >= sharedKvFrom ? undefined : keyValue(),
    output: tensors.matrix('attn_output.weight'),
    outputBias: hasOutputBias ? tensors.vector('attn_output.bias') : undefined,
    sinks: hasSinks ? tensors.vector('attn_sinks.weight') : undefined,
    rope: ropeOfLayer(config, layer),
    heads: headsOfLayer(config, layer),
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
 * Grouped-query attention: each KV head serves several query heads. Architectures may have biases, norms before RoPE
 * (of each head, or of a token's heads together), other RoPE or none in some layers, a temperature, and a gate of the result.
 *
 *   h -> k -> norm, rope -> row of the pool [KV heads * headDim];  h -> v -> norm -> row of the pool
 *   h -> q -> norm, rope -> times the temperature -> attention -> times sigmoid(gate) -> output matrix
 */
export class GroupedQueryProjections implements AttentionProjections {
  readonly #parts: GroupedQueryParts;
  readonly #rotations: GraphRotations | undefined;
  /** F32 `[rows]`: a factor for the queries of each row, if the model has a temperature. */
  readonly #temperatures: Readonly<Record<AttentionRows, TensorPtr>> | undefined;

  constructor(parts: GroupedQueryParts, { paddedRowCount, outputRows }: Batch) {
    const { graph, config, headRotation, ropeFreqs } = parts;
    this.#parts = parts;
    this.#rotations = headRotation?.of(graph, ropeFreqs);
    if (config.temperature === undefined) return;
    this.#temperatures = {
      all: graph.input(F32, paddedRowCount),
      outputs: graph.input(F32, Math.max(1, outputRows.length)),
    };
  }

  writeInputs({ positions, outputPositions }: Batch): void {
    const { graph, config } = this.#parts;
    const { temperature } = config;
    if (this.#temperatures === undefined || temperature === undefined) return;
    graph.write(this.#temperatures.all, temperaturesOf(positions, temperature));
    graph.write(this.#temperatures.outputs, temperaturesOf(outputPositions, temperature));
  }

  poolRows(weights: LayerWeights, h: TensorPtr, { positions }: RowPlace): readonly TensorPtr[] {
    const { graph, config, operations } = this.#parts;
    const { keyValue, rope, heads } = attentionOf(weights);
    const { key, keyBias, keyNorm, value, valueBias, hasValueNorm } = assertDefined(keyValue, 'a layer with KV');
    const { headDim, headCountKv } = heads;
    const rows = graph.rowCountOf(h);
    const byHead = (x: TensorPtr): TensorPtr => graph.reshape3d(x, headDim, headCountKv, rows);
    const product = operations.project(key, keyBias, h);
    const k = this.#rotate(byHead(this.#normOfRow(product, keyNorm)), keyNorm, positions, rope);
    const projected = value === undefined ? product : operations.project(value, valueBias, h);
    const v = hasValueNorm ? graph.rmsNorm(byHead(projected), undefined, config.rmsEpsilon) : projected;
    return [k, v].map((x) => graph.reshape2d(x, headDim * headCountKv, rows));
  }

  attend(weights: LayerWeights, h: TensorPtr, { positions, index, rows }: QueryPlace): TensorPtr {
    const { graph, operations, attention } = this.#parts;
    const { query, queryBias, queryNorm, output, outputBias, rope, heads: shape } = attentionOf(weights);
    const projected = this.#normOfRow(operations.project(query, queryBias, h), queryNorm);
    const { heads, gate } = this.#queriesAndGate(projected, shape);
    const rotated = this.#rotate(heads, queryNorm, positions, rope);
    const factors = this.#temperatures?.[rows];
    const queries =
      factors === undefined
        ? rotated
        : graph.multiply(rotated, graph.reshape3d(factors, 1, 1, graph.columnCountOf(factors)));
    const attended = attention.attend(graph, index, queries, rows);
    const result = gate === undefined ? attended : graph.multiply(attended, graph.activate('sigmoid', gate));
    return operations.multiplyAndAdd(output, outputBias, result);
  }

  /** `heads`: `[headDim, heads, rows]`. With gated attention, the gate of a head follows its query. */
  #queriesAndGate(
    projected: TensorPtr,
    { headDim }: HeadShape,
  ): { readonly heads: TensorPtr; readonly gate: TensorPtr | undefined } {
    const { graph, config } = this.#parts;
    const { headCount, hasGatedAttention } = config;
    const rows = graph.rowCountOf(projected);
    if (!hasGatedAttention) return { heads: graph.reshape3d(projected, headDim, headCount, rows), gate: undefined };
    const bytes = headDim * F32.typeSize;
    const half = (index: number): TensorPtr =>
      graph.view3d(projected, [headDim, headCount, rows], [2 * bytes, 2 * bytes * headCount], index * bytes);
    return { heads: half(0), gate: graph.reshape2d(graph.contiguous(half(1)), headDim * headCount, rows) };
  }

  /** `[elements of all heads, rows]` -> normed, if the model has a norm of all heads together. */
  #normOfRow(projected: TensorPtr, norm: TensorPtr | undefined): TensorPtr {
    const { config, operations } = this.#parts;
    return operations.norm(projected, config.qkNorm === 'row' ? norm : undefined);
  }

  /** `[headDim, heads, rows]` -> normed per head if the model has such norms, and rotated. */
  #rotate(x: TensorPtr, weight: TensorPtr | undefined, positions: TensorPtr, rope: RopeConfig | undefined): TensorPtr {
    const { graph, config, operations, ropeFreqs } = this.#parts;
    const norm = config.qkNorm === 'head' ? weight : undefined;
    if (this.#rotations !== undefined && rope !== undefined) {
      return this.#rotations.rotate({ x, positions, norm, rope });
    }
    const normed = operations.norm(x, norm);
    if (rope === undefined) return normed;
    return graph.rope(normed, positions, hasDivisors(rope) ? ropeFreqs : undefined, rope);
  }
}

const attentionOf = ({ attention }: LayerWeights): AttentionWeights =>
  assertDefined(attention, 'a layer with K and V of each KV head');
