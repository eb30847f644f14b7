import type { TensorPtr } from '../../ggml/ffi.ts';
import type { GraphBuilder } from '../../ggml/graph.ts';
import { F16, F32, I32, rowBytes } from '../../ggml/types.ts';
import type { Batch, BatchSequence } from '../batch.ts';
import { type KvMemory, type KvPart, keyPart, kvRowBytes, valuePart } from '../kv-memory.ts';
import type { Attention, AttentionRows } from './attention.ts';

const maskedOut = 0xfc00; // -infinity in F16

interface SequenceInputs {
  readonly sequence: BatchSequence;
  readonly blockCount: number;
  /** Tokens of KV that attention reads: the tokens that the last row sees, and padding that is masked out. */
  readonly kvLength: number;
  readonly granules: TensorPtr;
  /** Undefined for a single row that sees all of its KV. */
  readonly mask: TensorPtr | undefined;
}

/**
 * Copies a request's blocks side by side (`ggml_get_rows` by block id) and calls `ggml_flash_attn_ext` on them. A
 * request takes one gather of K, one of V and one attention per layer. Runs on any ggml backend.
 */
export class GatherAttention implements Attention {
  readonly #memory: KvMemory;
  readonly #headCount: number;
  readonly #scale: number;
  readonly #kvMultiple: number;
  #batch: Batch | undefined;
  #inputs: SequenceInputs[] = [];
  /** The tensor into which the results of all sequences are written, for each kind of rows; every layer reuses it. */
  #canvases = new Map<AttentionRows, TensorPtr>();

  /** `kvMultiple`: GPU kernels need KV in whole tiles; CPU kernels compute any length (1). */
  constructor(memory: KvMemory, headCount: number, kvMultiple: number) {
    this.#memory = memory;
    this.#headCount = headCount;
    this.#kvMultiple = kvMultiple;
    this.#scale = 1 / Math.sqrt(memory.layout.headDim);
  }

  nodeCount(batch: Batch, layerCount: number): number {
    return batch.sequences.length * (2 + 8 * layerCount) + 2;
  }

  prepare(graph: GraphBuilder, batch: Batch): void {
    this.#batch = batch;
    this.#canvases.clear();
    this.#inputs = batch.sequences.map((sequence) => {
      const kvLength = Math.ceil(sequence.kvLength / this.#kvMultiple) * this.#kvMultiple;
      const blockCount = Math.ceil(kvLength / this.#memory.layout.blockSize);
      const seesAll = sequence.rowCount === 1 && kvLength === sequence.kvLength;
      return {
        sequence,
        blockCount,
        kvLength,
        granules: graph.input(I32, blockCount * this.#memory.granulesPerPart),
        mask: seesAll ? undefined : graph.input(F16, kvLength, sequence.rowCount),
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
      const mask = count === sequence.rowCount ? inputs.mask : this.#lastRowMask(graph, inputs);
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

  /** The graph depends on the length of the context. */
  rebind(): boolean {
    return false;
  }

  writeInputs(graph: GraphBuilder): void {
    for (const { sequence, kvLength, blockCount, granules, mask } of this.#inputs) {
      const table = sequence.plan.blockTables[0];
      // Padding reads the null block. Only on a GPU is KV padded, and there no padding row writes to the null block.
      const ids = new Int32Array(blockCount);
      if (table !== undefined) ids.set(table.ids.subarray(0, Math.min(blockCount, table.length)));
      graph.write(granules, this.#memory.granulesOf(ids));
      if (mask !== undefined && this.#batch !== undefined) {
        graph.write(mask, causalMask(this.#batch.positions, sequence, kvLength));
      }
    }
  }

  /** A sampled row sees all of its request's KV: no mask, or the last row of the mask if KV is padded. */
  #lastRowMask(graph: GraphBuilder, { sequence, kvLength, mask }: SequenceInputs): TensorPtr | undefined {
    if (mask === undefined || kvLength === sequence.kvLength) return undefined;
    const rowBytes = kvLength * F16.typeSize;
    return graph.view2d(mask, kvLength, 1, rowBytes, (sequence.rowCount - 1) * rowBytes);
  }

  /** `[headDim, kvLength, headsKv]` of the pool's type: the request's K or V in order of position. */
  #gather(graph: GraphBuilder, layer: number, part: KvPart, { kvLength, granules }: SequenceInputs): TensorPtr {
    const { layout } = this.#memory;
    const { headDim, headCountKv, type } = layout;
    const gathered = graph.getRows(this.#memory.granuleRows(graph, layer, part), granules);
    return graph.reinterpret(
      gathered,
      type,
      [headDim, kvLength, headCountKv],
      [kvRowBytes(layout), rowBytes(type, headDim)],
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
function causalMask(positions: Int32Array, { firstRow, rowCount }: BatchSequence, kvLength: number): Uint16Array {
  const mask = new Uint16Array(kvLength * rowCount);
  for (let row = 0; row < rowCount; row++) {
    const seen = (positions[firstRow + row] ?? 0) + 1;
    mask.fill(maskedOut, row * kvLength + seen, (row + 1) * kvLength);
  }
  return mask;
}
