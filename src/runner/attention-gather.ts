import type { TensorPtr } from '../ggml/ffi.ts';
import type { GraphBuilder } from '../ggml/graph.ts';
import { F16, F32, I32 } from '../ggml/types.ts';
import type { Attention, AttentionRows } from './attention.ts';
import type { Batch, BatchSequence } from './batch.ts';
import { type KvMemory, type KvPart, keyPart, rowElements, valuePart } from './kv-memory.ts';

const maskedOut = 0xfc00; // -infinity in F16

interface SequenceInputs {
  readonly sequence: BatchSequence;
  readonly blockCount: number;
  readonly blocks: TensorPtr;
  /** Absent for a single row, which sees all of its KV. */
  readonly mask: TensorPtr | undefined;
}

/**
 * Copies a request's blocks side by side (`ggml_get_rows` by block id), then calls `ggml_flash_attn_ext` on them: one
 * gather of K, one of V and one attention per request and layer. Portable: it runs on any ggml backend.
 */
export class GatherAttention implements Attention {
  readonly #memory: KvMemory;
  readonly #headCount: number;
  readonly #scale: number;
  #batch: Batch | undefined;
  #inputs: SequenceInputs[] = [];
  /** Where the sequences' results come together, one for each kind of rows; used again by every layer. */
  #canvases = new Map<AttentionRows, TensorPtr>();

  constructor(memory: KvMemory, headCount: number) {
    this.#memory = memory;
    this.#headCount = headCount;
    this.#scale = 1 / Math.sqrt(memory.layout.headDim);
  }

  nodeCount(batch: Batch, layerCount: number): number {
    return batch.sequences.length * (2 + 8 * layerCount) + 2;
  }

  prepare(graph: GraphBuilder, batch: Batch): void {
    this.#batch = batch;
    this.#canvases.clear();
    this.#inputs = batch.sequences.map((sequence) => {
      const blockCount = Math.ceil(sequence.kvLength / this.#memory.layout.blockSize);
      return {
        sequence,
        blockCount,
        blocks: graph.input(I32, blockCount),
        mask: sequence.rowCount === 1 ? undefined : graph.input(F16, sequence.kvLength, sequence.rowCount),
      };
    });
  }

  attend(graph: GraphBuilder, layer: number, q: TensorPtr, rows: AttentionRows): TensorPtr {
    const { headDim } = this.#memory.layout;
    const width = headDim * this.#headCount;
    const canvas = this.#canvas(graph, rows, width);
    for (const inputs of this.#inputs) {
      const { sequence } = inputs;
      if (rows === 'outputs' && sequence.outputIndex === undefined) continue;
      const first = rows === 'all' ? sequence.firstRow : (sequence.outputIndex ?? 0);
      const count = rows === 'all' ? sequence.rowCount : 1;
      const part = graph.view3d(
        q,
        [headDim, count, this.#headCount],
        [width * F32.typeSize, headDim * F32.typeSize],
        first * width * F32.typeSize,
      );
      const mask = count === 1 ? undefined : inputs.mask;
      const result = graph.flashAttention(
        part,
        this.#gather(graph, layer, keyPart, inputs),
        this.#gather(graph, layer, valuePart, inputs),
        mask,
        this.#scale,
      );
      graph.placeInto(result, canvas, first * width * F32.typeSize);
      graph.expand(result);
    }
    return canvas;
  }

  writeInputs(graph: GraphBuilder): void {
    for (const { sequence, blockCount, blocks, mask } of this.#inputs) {
      const table = sequence.plan.blockTables[0];
      if (table !== undefined) graph.write(blocks, table.ids.subarray(0, blockCount));
      if (mask !== undefined && this.#batch !== undefined) {
        graph.write(mask, causalMask(this.#batch.positions, sequence));
      }
    }
  }

  /** F16 `[headDim, kvLength, headsKv]`: the request's K or V in order of position. */
  #gather(graph: GraphBuilder, layer: number, part: KvPart, { sequence, blocks }: SequenceInputs): TensorPtr {
    const { headDim, headCountKv } = this.#memory.layout;
    const gathered = graph.getRows(this.#memory.blockRows(graph, layer, part), blocks);
    return graph.reinterpret(
      gathered,
      F16,
      [headDim, sequence.kvLength, headCountKv],
      [rowElements(this.#memory.layout) * F16.typeSize, headDim * F16.typeSize],
    );
  }

  #canvas(graph: GraphBuilder, rows: AttentionRows, width: number): TensorPtr {
    let canvas = this.#canvases.get(rows);
    if (canvas === undefined) {
      const count = rows === 'all' ? this.#batch?.paddedRowCount : this.#batch?.outputRows.length;
      canvas = graph.canvas(F32, width, count ?? 0);
      this.#canvases.set(rows, canvas);
    }
    return canvas;
  }
}

/** Row r sees position j when j <= its own position: F16 `[kvLength, rowCount]`, 0 = seen. */
function causalMask(positions: Int32Array, { firstRow, rowCount, kvLength }: BatchSequence): Uint16Array {
  const mask = new Uint16Array(kvLength * rowCount);
  for (let row = 0; row < rowCount; row++) {
    const seen = (positions[firstRow + row] ?? 0) + 1;
    mask.fill(maskedOut, row * kvLength + seen, (row + 1) * kvLength);
  }
  return mask;
}
