import { assert, assertDefined } from '../../base/assert.ts';
import type { TensorPtr } from '../../ggml/ffi.ts';
import type { GraphBuilder } from '../../ggml/graph.ts';
import { F16, F32, I32, rowBytes } from '../../ggml/types.ts';
import type { Batch, BatchSequence } from '../batch.ts';
import { type KvMemory, type KvPart, keyPart, kvRowBytes, valuePart } from '../kv-memory.ts';
import { type Attention, type AttentionLayer, type AttentionRows, equalLayers } from './attention.ts';

const maskedOut = 0xfc00; // -infinity in F16

interface SequenceInputs {
  readonly sequence: BatchSequence;
  /** The first block that a row sees; later than block 0 only with a window. */
  readonly firstBlock: number;
  readonly blockCount: number;
  /** Tokens of KV that attention reads, from the first block to the last row's token, and padding that is masked out. */
  readonly kvLength: number;
  readonly granules: TensorPtr;
  /** Undefined for a single row that sees all of its KV. */
  readonly mask: TensorPtr | undefined;
}

/** A layer's sinks as an input of the graph. */
interface SinkInput {
  readonly tensor: TensorPtr;
  readonly values: Float32Array;
}

/** Layers that read the same blocks and the same tokens of them. */
interface Reader {
  readonly group: number;
  readonly window: number;
  readonly ahead: number;
  inputs: SequenceInputs[];
}

/**
 * Copies a request's blocks side by side (`ggml_get_rows` by block id) and calls `ggml_flash_attn_ext` on them. A
 * request takes one gather of K, one of V and one attention per layer. Runs on any ggml backend.
 */
export class GatherAttention implements Attention {
  readonly #memory: KvMemory;
  readonly #headCount: number;
  readonly #kvMultiple: number;
  readonly #layers: readonly AttentionLayer[];
  readonly #readers: Reader[] = [];
  /** By layer. */
  readonly #readerOf: readonly Reader[];
  #batch: Batch | undefined;
  #sinks: SinkInput[] = [];
  /** The tensor into which the results of all sequences are written, for each kind of rows; every layer reuses it. */
  #canvases = new Map<AttentionRows, TensorPtr>();

  /** `kvMultiple`: GPU kernels need KV in whole tiles; CPU kernels compute any length (1). */
  constructor(
    memory: KvMemory,
    headCount: number,
    kvMultiple: number,
    layers: readonly AttentionLayer[] = equalLayers(memory.layout),
  ) {
    this.#memory = memory;
    this.#headCount = headCount;
    this.#kvMultiple = kvMultiple;
    this.#layers = layers;
    this.#readerOf = layers.map(({ group, window = Infinity, ahead = Infinity, softCap }) => {
      assert(softCap === undefined, 'ggml over gathered blocks has no soft cap');
      const known = this.#readers.find((other) => other.group === group && other.window === window);
      const reader = known ?? { group, window, ahead, inputs: [] };
      if (known === undefined) this.#readers.push(reader);
      return reader;
    });
  }

  nodeCount(batch: Batch, layerCount: number): number {
    return batch.sequences.length * (2 * this.#readers.length + 8 * layerCount) + layerCount + 2;
  }

  prepare(graph: GraphBuilder, batch: Batch): void {
    this.#batch = batch;
    this.#canvases.clear();
    this.#sinks = [];
    for (const reader of this.#readers) {
      reader.inputs = batch.sequences.map((sequence) => this.#inputsOf(graph, sequence, batch.positions, reader));
    }
  }

  #inputsOf(graph: GraphBuilder, sequence: BatchSequence, positions: Int32Array, { window }: Reader): SequenceInputs {
    const { blockSize } = this.#memory.layout;
    const firstSeen = Math.max(0, positions[sequence.firstRow]! + 1 - window);
    const firstBlock = Math.floor(firstSeen / blockSize);
    const read = sequence.kvLength - firstBlock * blockSize;
    const kvLength = Math.ceil(read / this.#kvMultiple) * this.#kvMultiple;
    const blockCount = Math.ceil(kvLength / blockSize);
    const seesAll = sequence.rowCount === 1 && kvLength === read && firstSeen === firstBlock * blockSize;
    return {
      sequence,
      firstBlock,
      blockCount,
      kvLength,
      granules: graph.input(I32, blockCount * this.#memory.granulesPerPart),
      mask: seesAll ? undefined : graph.input(F16, kvLength, sequence.rowCount),
    };
  }

  attend(graph: GraphBuilder, layer: number, q: TensorPtr, rows: AttentionRows): TensorPtr {
    const { headDim, valueInKey } = this.#memory.layout;
    const width = headDim * this.#headCount;
    const valueWidth = (valueInKey ?? headDim) * this.#headCount;
    const canvas = this.#canvas(graph, rows, valueWidth);
    const { place, scale = 1 / Math.sqrt(headDim), sinks } = this.#layers[layer]!;
    const { window, inputs: ofSequences } = this.#readerOf[layer]!;
    const sinkInput = sinks === undefined ? undefined : this.#sinkInput(graph, sinks);
    for (const inputs of ofSequences) {
      const { sequence } = inputs;
      if (rows === 'outputs' && sequence.outputIndex === undefined) continue;
      const first = rows === 'all' ? sequence.firstRow : (sequence.outputIndex ?? 0);
      const count = rows === 'all' ? sequence.rowCount : sequence.outputCount;
      const part = graph.view3d(
        q,
        [headDim, count, this.#headCount],
        [width * F32.typeSize, headDim * F32.typeSize],
        first * width * F32.typeSize,
      );
      assert(count === 1 || count === sequence.rowCount, 'a sequence with drafts has only sampled rows');
      const mask = count === sequence.rowCount ? inputs.mask : this.#lastRowMask(graph, inputs, window);
      const keys = this.#gather(graph, place, keyPart, inputs);
      const values = valueInKey === undefined ? this.#gather(graph, place, valuePart, inputs) : keys;
      const result = graph.flashAttention(
        part,
        this.#heads(graph, keys, headDim, inputs),
        this.#heads(graph, values, valueInKey ?? headDim, inputs),
        mask,
        scale,
      );
      if (sinkInput !== undefined) graph.addSinks(result, sinkInput);
      graph.placeInto(result, canvas, first * valueWidth * F32.typeSize);
      graph.expand(result);
    }
    return canvas;
  }

  writeInputs(graph: GraphBuilder): void {
    for (const { tensor, values } of this.#sinks) graph.write(tensor, values);
    const { positions, seen } = assertDefined(this.#batch, 'attention is prepared');
    const { blockSize } = this.#memory.layout;
    for (const { group, window, ahead, inputs } of this.#readers) {
      for (const { sequence, firstBlock, kvLength, blockCount, granules, mask } of inputs) {
        const table = sequence.plan.blockTables[group];
        const isCovered = table !== undefined && table.length * blockSize >= sequence.kvLength;
        assert(isCovered, 'a block table that covers all KV that is read');
        // Padding reads the null block. Only on a GPU is KV padded, and there no padding row writes to the null block.
        const ids = new Int32Array(blockCount);
        ids.set(table.ids.subarray(firstBlock, Math.min(firstBlock + blockCount, table.length)));
        graph.write(granules, this.#memory.granulesOf(ids));
        if (mask === undefined) continue;
        graph.write(
          mask,
          maskOf({ positions, seen }, sequence, { first: firstBlock * blockSize, kvLength, window, ahead }),
        );
      }
    }
  }

  /** A sampled row sees all of its request's KV: no mask, or the last row of the mask if there are other tokens. */
  #lastRowMask(
    graph: GraphBuilder,
    { sequence, firstBlock, kvLength, mask }: SequenceInputs,
    window: number,
  ): TensorPtr | undefined {
    if (mask === undefined) return undefined;
    const { blockSize } = this.#memory.layout;
    const seesAll =
      kvLength === sequence.kvLength - firstBlock * blockSize && sequence.kvLength - window <= firstBlock * blockSize;
    if (seesAll) return undefined;
    const rowBytes = kvLength * F16.typeSize;
    return graph.view2d(mask, kvLength, 1, rowBytes, (sequence.rowCount - 1) * rowBytes);
  }

  /** The request's K or V in order of position, in granules. */
  #gather(graph: GraphBuilder, place: number, part: KvPart, { granules }: SequenceInputs): TensorPtr {
    return graph.getRows(this.#memory.granuleRows(graph, place, part), granules);
  }

  /** `[elements, kvLength, headsKv]` of the pool's type: the first elements of each head in gathered granules. */
  #heads(graph: GraphBuilder, gathered: TensorPtr, elements: number, { kvLength }: SequenceInputs): TensorPtr {
    const { layout } = this.#memory;
    const { headDim, headCountKv, type } = layout;
    const strides = [kvRowBytes(layout), rowBytes(type, headDim)] as const;
    return graph.reinterpret(gathered, type, [elements, kvLength, headCountKv], strides);
  }

  #sinkInput(graph: GraphBuilder, values: Float32Array): TensorPtr {
    const tensor = graph.input(F32, values.length);
    this.#sinks.push({ tensor, values });
    return tensor;
  }

  #canvas(graph: GraphBuilder, rows: AttentionRows, width: number): TensorPtr {
    let canvas = this.#canvases.get(rows);
    if (canvas === undefined) {
      const { paddedRowCount, outputRows } = assertDefined(this.#batch, 'attention is prepared');
      canvas = graph.canvas(F32, width, rows === 'all' ? paddedRowCount : outputRows.length);
      this.#canvases.set(rows, canvas);
    }
    return canvas;
  }
}

interface MaskShape {
  /** The position of the first token. */
  readonly first: number;
  readonly kvLength: number;
  readonly window: number;
  readonly ahead: number;
}

/**
 * Row r at position p sees position j when p - window < j <= p + ahead, up to the last that the batch lets it see: F16
 * `[kvLength, rowCount]`, 0 = seen. Column 0 is the token at `first`.
 */
function maskOf(
  { positions, seen }: Pick<Batch, 'positions' | 'seen'>,
  { firstRow, rowCount }: BatchSequence,
  { first, kvLength, window, ahead }: MaskShape,
): Uint16Array {
  const mask = new Uint16Array(kvLength * rowCount);
  for (let row = 0; row < rowCount; row++) {
    const next = positions[firstRow + row]! + 1 - first;
    const seenEnd = Math.min(next + ahead, seen[firstRow + row]! + 1 - first);
    mask.fill(maskedOut, row * kvLength, row * kvLength + Math.max(next - window, 0));
    mask.fill(maskedOut, row * kvLength + seenEnd, (row + 1) * kvLength);
  }
  return mask;
}
