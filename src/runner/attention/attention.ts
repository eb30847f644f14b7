import type { TensorPtr } from '../../ggml/ffi.ts';
import type { GraphBuilder } from '../../ggml/graph.ts';
import type { Batch } from '../batch.ts';
import type { KvLayout } from '../kv-memory.ts';

/**
 * Attention over the paged pool. One implementation gathers blocks and calls ggml (`attention-gather.ts`); the other is
 * a native kernel (`attention-native.ts`).
 *
 * For one step: `prepare` once, before the layers; `attend` once per layer, after that layer's KV is written;
 * `writeInputs` once, after the graph is allocated.
 */
export interface Attention {
  prepare(graph: GraphBuilder, batch: Batch): void;
  /**
   * q is F32 `[headDim, heads, rows]`, its rows being the whole batch (`all`) or the sampled rows (`outputs`). Returns
   * F32 `[heads * width, rows]`, with undefined values in padding rows. `width` is `headDim`. With V in K it may be
   * smaller, and the values are the first `valueInKey` elements of each head.
   */
  attend(graph: GraphBuilder, layer: number, q: TensorPtr, rows: AttentionRows): TensorPtr;
  writeInputs(graph: GraphBuilder): void;
  /**
   * Binds graphs with as many rows and outputs to another batch that fits: the last graph or, without `fits`, an earlier one. Called
   * instead of `prepare` and `attend`, before `writeInputs`. Absent if each step needs a graph of its own.
   */
  readonly rebind?: (batch: Batch) => void;
  /** Whether the last graph serves this batch, which has as many rows and outputs. Absent if these numbers are enough. */
  readonly fits?: (batch: Batch) => boolean;
  /** The largest number of tensors that `prepare` and `attend` add. */
  nodeCount(batch: Batch, layerCount: number): number;
}

/** How one layer attends. */
export interface AttentionLayer extends AttentionVariant {
  /** The KV group whose blocks have the layer's KV. All groups of one `Attention` have the same layout. */
  readonly group: number;
  /** The layer's index among the layers of a block. */
  readonly place: number;
}

/** Differences between layers and models besides their shapes. */
export interface AttentionVariant {
  /** Tokens that a row sees, itself included; default: all. */
  readonly window?: number | undefined;
  /** Tokens after a row that it sees, if the window has some; default: all that the batch lets the row see (`Batch.seen`). */
  readonly ahead?: number | undefined;
  /** Factor of scores; default: 1 / sqrt(length of a head). */
  readonly scale?: number;
  /** Scores become `cap * tanh(score / cap)`. */
  readonly softCap?: number;
  /** A score per query head, which is added to the softmax without a value. */
  readonly sinks?: Float32Array;
}

/** The layers of a pool with one KV group, if all layers have the same variant. */
export const equalLayers = ({ layerCount }: KvLayout, variant: AttentionVariant = {}): readonly AttentionLayer[] =>
  Array.from({ length: layerCount }, (_, place) => ({ ...variant, group: 0, place }));

export type AttentionRows = 'all' | 'outputs';
