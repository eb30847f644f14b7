import { requestId, stepId, tokenCount } from '../../core/ids.ts';
import { TokenBuffer } from '../../core/tokens.ts';
import type { ComputeDevice } from '../../ggml/device.ts';
import { GraphBuilder } from '../../ggml/graph.ts';
import { F32, Q8_0 } from '../../ggml/types.ts';
import { type Batch, layOutBatch } from '../batch.ts';
import { KvMemory, type KvType } from '../kv-memory.ts';
import { anyRows } from '../matmul/row-rule.ts';
import type { Attention, AttentionRows } from './attention.ts';
import { GatherAttention } from './attention-gather.ts';
import type { AttentionKernel } from './attention-kernel.ts';
import { NativeAttention } from './attention-native.ts';

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
  return layOutBatch(plan, { memory, groups }, anyRows);
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
  const { layer = 0, rows = 'all' } = query;
  const graph = new GraphBuilder(device);
  try {
    graph.begin(64 + attention.nodeCount(batch, 1));
    const width = query.headDim * query.heads;
    const count = query.values.length / width;
    const q = graph.input(F32, width, count);
    attention.prepare(graph, batch);
    const result = attention.attend(graph, layer, graph.reshape3d(q, query.headDim, query.heads, count), rows);
    graph.output(result);
    graph.allocate();
    graph.write(q, query.values);
    attention.writeInputs(graph);
    graph.computeNow();
    return new Float32Array(graph.dataOf(result)).slice();
  } finally {
    graph.close();
  }
}

/**
 * Tests a kernel on random KV of the model's shape. The kernel must equal ggml over gathered blocks, and rows of a
 * prompt must have the same bits as each row alone. Returns the mistake, or undefined.
 */
export function selfTest(
  device: ComputeDevice,
  kernel: AttentionKernel,
  headCountKv: number,
): 'differs from ggml' | 'is not exact' | undefined {
  const { headDim, group, blockSize, kvType, valueInKey } = kernel.shape;
  const heads = headCountKv * group;
  const length = 700;
  const blockCount = Math.ceil(length / blockSize) + 2;
  const layout = { type: kvType, layerCount: 1, blockSize, headCountKv, headDim, valueInKey };
  const memory = new KvMemory(device, layout, blockCount);
  try {
    fillRandomKv(new Uint8Array(device.native.memoryAt(memory.baseAddress, blockCount * memory.blockBytes)), kvType, 1);
    const blocks = Int32Array.from({ length: blockCount - 1 }, (_, i) => blockCount - 1 - i);
    const native = new NativeAttention(device, memory, kernel);
    const gather = new GatherAttention(memory, heads, 1);
    const values = randomFloats(40 * heads * headDim, 2);
    const prompt = probeBatch([{ spans: [[length - 40, length]], blocks }], memory);
    const together = attendOnce(device, native, prompt, { values, headDim, heads });
    const expected = attendOnce(device, gather, prompt, { values, headDim, heads });
    // ggml sums in F16. Each result is a weighted average of 700 numbers in [-1, 1].
    const ours = firstOfHeads(together, headDim, valueInKey);
    if (!expected.every((value, i) => Math.abs(value - (ours[i] ?? 0)) < 0.01)) return 'differs from ggml';
    for (const row of [0, 17, 39]) {
      const position = length - 40 + row;
      const alone = probeBatch([{ spans: [[position, position + 1]], blocks }], memory);
      const start = row * heads * headDim;
      const part = values.subarray(start, start + heads * headDim);
      const result = attendOnce(device, native, alone, { values: part, headDim, heads });
      if (!result.every((value, i) => Object.is(value, together[start + i]))) return 'is not exact';
    }
    return undefined;
  } finally {
    memory.close();
  }
}

/** The first `count` elements of each head: the values of a layout with V in K. */
export function firstOfHeads(values: Float32Array, headDim: number, count = headDim): Float32Array {
  return count === headDim ? values : values.filter((_, i) => i % headDim < count);
}

/** Uniform in [-1, 1), from a linear congruential generator. */
export function randomFloats(length: number, seed: number): Float32Array {
  const values = new Float32Array(length);
  let state = seed;
  for (let i = 0; i < length; i++) {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    values[i] = state / 2 ** 31 - 1;
  }
  return values;
}

/** KV in (-1, 1): f16, or for q8_0 scales between 2^-9 and 2^-8 and bytes of any value. */
export function fillRandomKv(into: Uint8Array, type: KvType, seed: number): void {
  fillRandomF16(new Uint16Array(into.buffer, into.byteOffset, into.byteLength >> 1), seed);
  if (type !== Q8_0) return;
  for (let at = 0; at < into.length; at += Q8_0.typeSize) into[at + 1] = 0x18 | (into[at + 1]! & 0x83);
}

/** f16 of either sign with exponents -9 to -1, so in (-1, 1). */
export function fillRandomF16(into: Uint16Array, seed: number): void {
  let state = seed;
  for (let i = 0; i < into.length; i++) {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    into[i] = ((state >>> 16) & 0x83ff) | ((6 + ((state >>> 8) % 9)) << 10);
  }
}
