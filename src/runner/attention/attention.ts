import type { TensorPtr } from '../../ggml/ffi.ts';
import type { GraphBuilder } from '../../ggml/graph.ts';
import type { Batch } from '../batch.ts';

/**
 * How attention reads the paged pool. One implementation gathers blocks and calls ggml (`attention-gather.ts`);
 * a native kernel can take its place.
 *
 * For one step: `prepare` once, before the layers; `attend` once per layer, after that layer's KV is written;
 * `writeInputs` once, when the graph has memory.
 */
export interface Attention {
  prepare(graph: GraphBuilder, batch: Batch): void;
  /**
   * q is F32 `[headDim, heads, rows]`, its rows being the whole batch (`all`) or the rows to be sampled (`outputs`);
   * answers F32 `[heads * headDim, rows]`. Padding rows of the answer hold anything.
   */
  attend(graph: GraphBuilder, layer: number, q: TensorPtr, rows: AttentionRows): TensorPtr;
  writeInputs(graph: GraphBuilder): void;
  /**
   * Binds the last graph, as `prepare` and `attend` left it, to another batch with as many rows and outputs; called
   * instead of them, before `writeInputs`. Answers false, having changed nothing, when the graph depends on more.
   */
  rebind(batch: Batch): boolean;
  /** Tensors that `prepare` and one `attend` add, at most. */
  nodeCount(batch: Batch, layerCount: number): number;
}

export type AttentionRows = 'all' | 'outputs';
