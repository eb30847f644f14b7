import { assert, assertDefined } from '../../base/assert.ts';
import type { TensorPtr } from '../../ggml/ffi.ts';
import type { GraphBuilder } from '../../ggml/graph.ts';
import { F16, F32, I32, rowBytes } from '../../ggml/types.ts';
import type { Batch, BatchSequence } from '../batch.ts';
import { type KvMemory, type KvPart, keyPart, kvRowBytes, valuePart } from '../kv-memory.ts';
import { type Attention, type AttentionLayer, type AttentionRows, equalLayers } from './attention.ts';

const maskedOut = 0xfc00; // -infinity in F16

/** What the rows of a sequence read. */
interface SequenceReads {
  readonly sequence: BatchSequence;
  /** The first block that a row sees; later than block 0 only with a window. */
  readonly firstBlock: number;
  readonly blockCount: number;
  /** One part with all rows, or a part for each row. */
  readonly parts: readonly Part[];
  readonly hasMask: boolean;
}

interface SequenceInputs extends SequenceReads {
  readonly granules: TensorPtr;
  /** F16 `[kvLength, rows]` of each part, one after another. */
  readonly mask: TensorPtr | undefined;
}

/** Adjacent rows of a sequence for which ggml's attention is called once. */
interface Part {
  /** Of the sequence. */
  readonly firstRow: number;
  readonly rowCount: number;
  /** Tokens from the sequence's first block to the first that the part reads: whole blocks. */
  readonly skipped: number;
  /** Tokens of KV that the part reads, to the last row's token, and padding that is masked out. */
  readonly kvLength: number;
  /** The index of the part's first element in the mask. */
  readonly maskStart: number;
}

/** A call of ggml's attention: rows of q from `firstRow` on. */
interface Call extends Omit<Part, 'maskStart'> {
  readonly mask: TensorPtr | undefined;
}

export interface GatherOptions {
  /** GPU kernels need KV in whole tiles; CPU kernels compute any length (1). */
  readonly kvMultiple: number;
  /**
   * ggml's attention is called for each row with a shape that depends only on the row's position. So a row has the same bits in any
   * batch, with all kernels and splits of KV that a backend may choose for a shape.
   */
  readonly isByRow?: boolean;
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
  readonly #options: GatherOptions;
  /** The first block that a row reads is a multiple of it. */
  readonly #blockMultiple: number;
  readonly #layers: readonly AttentionLayer[];
  readonly #readers: Reader[] = [];
  /** By layer. */
  readonly #readerOf: readonly Reader[];
  /** With padded KV, graphs serve later steps too, until a sequence needs more of it. */
  readonly fits?: (batch: Batch) => boolean;
  readonly rebind?: (batch: Batch) => void;
  #batch: Batch | undefined;
  #sinks: SinkInput[] = [];
  /** The tensor into which the results of all sequences are written, for each kind of rows; every layer reuses it. */
  #canvases = new Map<AttentionRows, TensorPtr>();

  constructor(
    memory: KvMemory,
    headCount: number,
    options: GatherOptions,
    layers: readonly AttentionLayer[] = equalLayers(memory.layout),
  ) {
    this.#memory = memory;
    this.#headCount = headCount;
    this.#options = options;
    this.#blockMultiple = options.isByRow === true ? alignedBlocks(memory.layout) : 1;
    this.#layers = layers;
    this.#readerOf = layers.map(({ group, window = Infinity, ahead = Infinity, softCap }) => {
      assert(softCap === undefined, 'ggml over gathered blocks has no soft cap');
      const known = this.#readers.find((other) => other.group === group && other.window === window);
      const reader = known ?? { group, window, ahead, inputs: [] };
      if (known === undefined) this.#readers.push(reader);
      return reader;
    });
    if (options.kvMultiple > 1) {
      this.fits = (batch) => this.#fits(batch);
      this.rebind = (batch) => this.#rebind(batch);
    }
  }

  nodeCount({ sequences, rowCount }: Batch, layerCount: number): number {
    const calls = this.#options.isByRow === true ? rowCount : sequences.length;
    return sequences.length * (2 * this.#readers.length + 4 * layerCount) + calls * 8 * layerCount + layerCount + 2;
  }

  prepare(graph: GraphBuilder, batch: Batch): void {
    this.#batch = batch;
    this.#canvases.clear();
    this.#sinks = [];
    for (const reader of this.#readers) {
      reader.inputs = batch.sequences.map((sequence) => this.#inputsOf(graph, this.#readsOf(sequence, batch, reader)));
    }
  }

  #fits(batch: Batch): boolean {
    return this.#readers.every(
      (reader) =>
        reader.inputs.length === batch.sequences.length &&
        reader.inputs.every((known, i) => haveSameShapes(known, this.#readsOf(batch.sequences[i]!, batch, reader))),
    );
  }

  #rebind(batch: Batch): void {
    this.#batch = batch;
    for (const reader of this.#readers) {
      reader.inputs = reader.inputs.map(({ granules, mask }, i) => ({
        ...this.#readsOf(batch.sequences[i]!, batch, reader),
        ...{ granules, mask },
      }));
    }
  }

  #readsOf(sequence: BatchSequence, batch: Batch, reader: Reader): SequenceReads {
    const { blockSize } = this.#memory.layout;
    const { firstRow, rowCount, kvLength: end } = sequence;
    const firstBlock = this.#firstBlockOf(batch.positions[firstRow]!, reader);
    const parts: Part[] = [];
    let maskLength = 0;
    const add = (part: Omit<Part, 'maskStart'>): void => {
      parts.push({ ...part, maskStart: maskLength });
      maskLength += part.kvLength * part.rowCount;
    };
    if (this.#options.isByRow === true) {
      for (let row = 0; row < rowCount; row++) {
        const position = batch.positions[firstRow + row]!;
        const skipped = (this.#firstBlockOf(position, reader) - firstBlock) * blockSize;
        const seenEnd = Math.min(position + 1 + reader.ahead, batch.seen[firstRow + row]! + 1);
        add({
          firstRow: row,
          rowCount: 1,
          skipped,
          kvLength: this.#padded(seenEnd - firstBlock * blockSize - skipped),
        });
      }
    } else add({ firstRow: 0, rowCount, skipped: 0, kvLength: this.#padded(end - firstBlock * blockSize) });
    const read = Math.max(...parts.map(({ skipped, kvLength }) => skipped + kvLength));
    const blockCount = Math.ceil(read / blockSize);
    const firstSeen = Math.max(0, batch.positions[firstRow]! + 1 - reader.window);
    const seesAll = rowCount === 1 && read === end - firstBlock * blockSize && firstSeen === firstBlock * blockSize;
    // On a GPU there always is a mask, because the kernel may depend on that.
    return { sequence, firstBlock, blockCount, parts, hasMask: this.#options.kvMultiple > 1 || !seesAll };
  }

  #inputsOf(graph: GraphBuilder, reads: SequenceReads): SequenceInputs {
    const { sequence, blockCount, parts, hasMask } = reads;
    const maskRows = parts.length === 1 ? sequence.rowCount : 1;
    const last = parts.at(-1)!;
    const maskLength = last.maskStart + last.kvLength * last.rowCount;
    return {
      ...reads,
      granules: graph.input(I32, blockCount * this.#memory.granulesPerPart),
      mask: hasMask ? graph.input(F16, maskLength / maskRows, maskRows) : undefined,
    };
  }

  #firstBlockOf(position: number, { window }: Reader): number {
    const block = Math.floor(Math.max(0, position + 1 - window) / this.#memory.layout.blockSize);
    return block - (block % this.#blockMultiple);
  }

  #padded(tokens: number): number {
    const { kvMultiple } = this.#options;
    return Math.ceil(tokens / kvMultiple) * kvMultiple;
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
      if (rows === 'outputs' && inputs.sequence.outputIndex === undefined) continue;
      const keys = this.#gather(graph, place, keyPart, inputs);
      const values = valueInKey === undefined ? this.#gather(graph, place, valuePart, inputs) : keys;
      for (const call of this.#callsOf(graph, inputs, rows, window)) {
        const part = graph.view3d(
          q,
          [headDim, call.rowCount, this.#headCount],
          [width * F32.typeSize, headDim * F32.typeSize],
          call.firstRow * width * F32.typeSize,
        );
        const result = graph.flashAttention(
          part,
          this.#heads(graph, keys, headDim, call),
          this.#heads(graph, values, valueInKey ?? headDim, call),
          call.mask,
          scale,
        );
        if (sinkInput !== undefined) graph.addSinks(result, sinkInput);
        graph.placeInto(result, canvas, call.firstRow * valueWidth * F32.typeSize);
      }
    }
    return canvas;
  }

  #callsOf(graph: GraphBuilder, inputs: SequenceInputs, rows: AttentionRows, window: number): readonly Call[] {
    const { sequence, parts } = inputs;
    const { rowCount, outputCount, outputIndex = 0 } = sequence;
    const maskOfPart = (part: Part): TensorPtr | undefined => {
      if (inputs.mask === undefined || parts.length === 1) return inputs.mask;
      const { kvLength, maskStart } = part;
      const bytes = kvLength * F16.typeSize;
      return graph.view2d(inputs.mask, kvLength, part.rowCount, bytes, maskStart * F16.typeSize);
    };
    if (rows === 'all')
      return parts.map((part) => ({ ...part, firstRow: sequence.firstRow + part.firstRow, mask: maskOfPart(part) }));
    const before = rowCount - outputCount;
    const [only] = parts;
    if (before > 0 && only?.rowCount === rowCount) {
      assert(outputCount === 1, 'a sequence with drafts has only sampled rows');
      return [{ ...only, firstRow: outputIndex, rowCount: 1, mask: this.#lastRowMask(graph, inputs, only, window) }];
    }
    return parts
      .filter(({ firstRow }) => firstRow >= before)
      .map((part) => ({ ...part, firstRow: outputIndex + part.firstRow - before, mask: maskOfPart(part) }));
  }

  writeInputs(graph: GraphBuilder): void {
    for (const { tensor, values } of this.#sinks) graph.write(tensor, values);
    const { positions, seen } = assertDefined(this.#batch, 'attention is prepared');
    const { blockSize } = this.#memory.layout;
    for (const { group, window, ahead, inputs } of this.#readers) {
      for (const { sequence, firstBlock, blockCount, granules, parts, mask } of inputs) {
        const table = sequence.plan.blockTables[group];
        const isCovered = table !== undefined && table.length * blockSize >= sequence.kvLength;
        assert(isCovered, 'a block table that covers all KV that is read');
        // Padding reads the null block. Only on a GPU is KV padded, and there no padding row writes to the null block.
        const ids = new Int32Array(blockCount);
        const endBlock = Math.ceil(sequence.kvLength / blockSize);
        ids.set(table.ids.subarray(firstBlock, Math.min(firstBlock + blockCount, endBlock)));
        graph.write(granules, this.#memory.granulesOf(ids));
        if (mask === undefined) continue;
        for (const { firstRow, rowCount, skipped, kvLength, maskStart } of parts) {
          const rows = { firstRow: sequence.firstRow + firstRow, rowCount };
          const shape = { first: firstBlock * blockSize + skipped, kvLength, window, ahead };
          graph.write(mask, maskOf({ positions, seen }, rows, shape), maskStart * F16.typeSize);
        }
      }
    }
  }

  /** A sampled row sees all of its request's KV: on a CPU no mask, or the last row of the mask if there are other tokens. */
  #lastRowMask(
    graph: GraphBuilder,
    { sequence, firstBlock, mask }: SequenceInputs,
    { kvLength }: Part,
    window: number,
  ): TensorPtr | undefined {
    if (mask === undefined) return undefined;
    const { blockSize } = this.#memory.layout;
    const seesAll =
      kvLength === sequence.kvLength - firstBlock * blockSize && sequence.kvLength - window <= firstBlock * blockSize;
    if (seesAll && this.#options.kvMultiple === 1) return undefined;
    const rowBytes = kvLength * F16.typeSize;
    return graph.view2d(mask, kvLength, 1, rowBytes, (sequence.rowCount - 1) * rowBytes);
  }

  /** The request's K or V in order of position, in granules. */
  #gather(graph: GraphBuilder, place: number, part: KvPart, { granules }: SequenceInputs): TensorPtr {
    return graph.getRows(this.#memory.granuleRows(graph, place, part), granules);
  }

  /** `[elements, kvLength, headsKv]` of the pool's type: the first elements of each head in gathered granules. */
  #heads(graph: GraphBuilder, gathered: TensorPtr, elements: number, { kvLength, skipped }: Call): TensorPtr {
    const { layout } = this.#memory;
    const { headDim, headCountKv, type } = layout;
    const bytes = kvRowBytes(layout);
    const strides = [bytes, rowBytes(type, headDim)] as const;
    return graph.reinterpret(gathered, type, [elements, kvLength, headCountKv], strides, skipped * bytes);
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

/** Whether attention over both needs the same graph. */
function haveSameShapes(a: SequenceReads, b: SequenceReads): boolean {
  const [one, other] = [a.sequence, b.sequence];
  return (
    a.blockCount === b.blockCount &&
    a.hasMask === b.hasMask &&
    one.firstRow === other.firstRow &&
    one.rowCount === other.rowCount &&
    one.outputIndex === other.outputIndex &&
    one.outputCount === other.outputCount &&
    a.parts.length === b.parts.length &&
    a.parts.every(
      (part, i) =>
        part.firstRow === b.parts[i]!.firstRow &&
        part.rowCount === b.parts[i]!.rowCount &&
        part.skipped === b.parts[i]!.skipped &&
        part.kvLength === b.parts[i]!.kvLength,
    )
  );
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
  { firstRow, rowCount }: Pick<BatchSequence, 'firstRow' | 'rowCount'>,
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

/** Backends need the views of KV at multiples of so many bytes. */
const viewAlignment = 256;

/** The number of blocks after which KV in a row is aligned again. */
function alignedBlocks(layout: KvMemory['layout']): number {
  const bytes = layout.blockSize * kvRowBytes(layout);
  let blocks = 1;
  while ((blocks * bytes) % viewAlignment !== 0) blocks++;
  return blocks;
}
