import { requestId, stepId, tokenCount } from '../../core/ids.ts';
import { TokenBuffer } from '../../core/tokens.ts';
import type { ComputeDevice } from '../../ggml/device.ts';
import { GraphBuilder } from '../../ggml/graph.ts';
import { copyOf } from '../../ggml/graph-copy.ts';
import { F32 } from '../../ggml/types.ts';
import { type Batch, layOutBatch } from '../batch.ts';
import type { KvMemory } from '../kv-memory.ts';
import { anyRows } from '../matmul/row-rule.ts';
import type { Attention, AttentionRows } from './attention.ts';

/** Spans of one sequence, and its block table. */
export interface ProbeSequence {
  readonly spans: readonly (readonly [start: number, end: number])[];
  readonly blocks: Int32Array;
}

/** The batch of a step that computes these spans; each sequence's last row is sampled. */
export function probeBatch(sequences: readonly ProbeSequence[], memory: KvMemory): Batch {
  const rows = sequences.flatMap(({ spans }) => spans).reduce((sum, [start, end]) => sum + end - start, 0);
  const plan = {
    stepId: stepId(1),
    tokenCount: tokenCount(rows),
    released: [],
    sequences: sequences.map(({ spans, blocks }) => ({
      requestId: requestId('probe'),
      tokens: new TokenBuffer(new Int32Array(spans.at(-1)?.[1] ?? 0)),
      spans: spans.map(([start, end]) => ({ start: tokenCount(start), end: tokenCount(end) })),
      blockTables: [{ ids: blocks, length: blocks.length }],
      sample: {} as never,
    })),
  };
  const { blockSize } = memory.layout;
  const groups = [{ kind: 'full', blockSize: tokenCount(blockSize), layers: [0] }] as const;
  return layOutBatch(plan, { memories: [memory], groups }, anyRows);
}

export interface ProbeQuery {
  /** q, F32 `[rows, heads * headDim]`. */
  readonly values: Float32Array;
  readonly headDim: number;
  readonly heads: number;
  /** Default 0. */
  readonly layer?: number;
  /** Default `all`. */
  readonly rows?: AttentionRows;
}

/** Computes one attention in its own graph: F32 `[rows, heads * headDim]`. */
export function attendOnce(device: ComputeDevice, attention: Attention, batch: Batch, query: ProbeQuery): Float32Array {
  const graph = new GraphBuilder(device);
  try {
    return attendIn(graph, attention, batch, query);
  } finally {
    graph.close();
  }
}

/** The same in a builder that computes several of them. */
export function attendIn(graph: GraphBuilder, attention: Attention, batch: Batch, query: ProbeQuery): Float32Array {
  const { layer = 0, rows = 'all' } = query;
  graph.begin(64 + attention.nodeCount(batch, 1));
  const width = query.headDim * query.heads;
  const count = query.values.length / width;
  const q = graph.input(F32, width, count);
  attention.prepare(graph, batch);
  const attended = attention.attend(graph, layer, graph.reshape3d(q, query.headDim, query.heads, count), rows);
  // With a GPU, ggml's scheduler needs a node that reads the canvas.
  const result = graph.contiguous(attended);
  graph.output(result);
  graph.allocate();
  graph.write(q, query.values);
  attention.writeInputs(graph);
  graph.computeNow();
  return copyOf(graph, result, Float32Array, graph.columnCountOf(result) * graph.rowCountOf(result));
}

/** The first `count` elements of each head: the values of a layout with V in K. */
export function firstOfHeads(values: Float32Array, headDim: number, count = headDim): Float32Array {
  return count === headDim ? values : values.filter((_, i) => i % headDim < count);
}
