import type { BlockId } from '../../core/ids.ts';
import type { ComputeDevice } from '../../ggml/device.ts';
import { GraphBuilder } from '../../ggml/graph.ts';
import { type KvLayout, KvMemory } from '../kv-memory.ts';
import { fillRandomKv, randomFloats } from '../random-values.ts';
import { GatherAttention, type GatherOptions } from './attention-gather.ts';
import { attendIn, probeBatch } from './probe.ts';

/** llama.cpp pads KV to this multiple, so ggml's GPU kernels are tested and tuned only for it. */
const gpuKvMultiple = 256;

export const gatherOnCpu: GatherOptions = { kvMultiple: 1 };
export const fastGather: GatherOptions = { kvMultiple: gpuKvMultiple };

/** In ascending order of cost. */
const forms: readonly GatherOptions[] = [fastGather, { ...fastGather, isByRow: true }];

/** Results in this process, by device and shapes. */
const found = new Map<string, GatherOptions | undefined>();

/**
 * The cheapest form of gathered attention with which a GPU gives a row the same bits alone, in chunks of a prompt and beside other
 * requests, for every layout of a model; undefined if no form does. GPU kernels depend on the number of rows and on the length of KV,
 * of which a row in a chunk has another one than alone.
 */
export function exactGatherForm(
  device: ComputeDevice,
  headCount: number,
  layouts: readonly KvLayout[],
): GatherOptions | undefined {
  const key = JSON.stringify([device.description, headCount, layouts]);
  if (!found.has(key)) found.set(key, measureForm(device, headCount, layouts));
  return found.get(key);
}

function measureForm(
  device: ComputeDevice,
  headCount: number,
  layouts: readonly KvLayout[],
): GatherOptions | undefined {
  // One graph builder for all, because Mesa's software Vulkan (22.3) corrupts memory when buffers are freed and allocated again.
  const graph = new GraphBuilder(device);
  const probes: AttentionProbe[] = [];
  try {
    for (const layout of layouts) probes.push(new AttentionProbe(device, graph, headCount, layout));
    return forms.find((form) => probes.every((probe) => probe.isExact(form)));
  } finally {
    graph.close();
    for (const probe of probes) probe.close();
  }
}

/** Prompts end after the second multiple of KV. */
const length = 2 * gpuKvMultiple + 10;
const rowCount = 40;
const firstRow = length - rowCount;

/** Rows of the prompt that a step computes: alone, decodes after it, and chunks, some of which end before others begin. */
type Rows = readonly [first: number, end: number];
const testedRows: readonly Rows[] = [
  [0, 1],
  [rowCount - 1, rowCount],
  [3, 19],
  [17, rowCount],
];
/** Rows of other requests in the batch. */
const besides: readonly Rows[] = [
  [5, 12],
  [36, 37],
];

/** Attention of some rows over random KV, in memory of its own. */
class AttentionProbe {
  readonly #graph: GraphBuilder;
  readonly #headCount: number;
  readonly #memory: KvMemory;
  readonly #blocks: Int32Array;
  readonly #queries: Float32Array;

  constructor(device: ComputeDevice, graph: GraphBuilder, headCount: number, layout: KvLayout) {
    const blockCount = Math.ceil((length + gpuKvMultiple) / layout.blockSize) + 1;
    this.#graph = graph;
    this.#headCount = headCount;
    this.#memory = new KvMemory(device, { ...layout, layerCount: 1 }, blockCount);
    this.#blocks = Int32Array.from({ length: blockCount - 1 }, (_, i) => blockCount - 1 - i);
    this.#queries = randomFloats(rowCount * layout.headDim * headCount, 2);
    const bytes = new Uint8Array(this.#memory.blockBytes);
    for (const block of this.#blocks) {
      fillRandomKv(bytes, layout.type, block);
      this.#memory.write(block as BlockId, bytes);
    }
  }

  isExact(form: GatherOptions): boolean {
    const { headDim, valueInKey = headDim } = this.#memory.layout;
    const perRow = valueInKey * this.#headCount;
    const together = this.#attend(form, [[0, rowCount]]);
    return testedRows.every((rows) => {
      const [first, end] = rows;
      const isEqual = (found: Float32Array): boolean =>
        found.subarray(0, (end - first) * perRow).every((value, i) => Object.is(value, together[first * perRow + i]));
      const isEqualAlone = isEqual(this.#attend(form, [rows]));
      return isEqualAlone && (end - first > 1 || isEqual(this.#attend(form, [rows, ...besides])));
    });
  }

  close(): void {
    this.#memory.close();
  }

  /** Rows of several sequences in one batch, all with the same KV. */
  #attend(form: GatherOptions, rows: readonly Rows[]): Float32Array {
    const memory = this.#memory;
    const { headDim } = memory.layout;
    const width = headDim * this.#headCount;
    const values = new Float32Array(rows.reduce((sum, [first, end]) => sum + (end - first) * width, 0));
    let at = 0;
    for (const [first, end] of rows) {
      values.set(this.#queries.subarray(first * width, end * width), at);
      at += (end - first) * width;
    }
    const sequences = rows.map(([first, end]) => ({
      spans: [[firstRow + first, firstRow + end]] as const,
      blocks: this.#blocks,
    }));
    const attention = new GatherAttention(memory, this.#headCount, form);
    return attendIn(this.#graph, attention, probeBatch(sequences, memory), { values, headDim, heads: this.#headCount });
  }
}
