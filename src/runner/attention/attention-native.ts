import { assert, assertDefined } from '../../base/assert.ts';
import type { ComputeDevice } from '../../ggml/device.ts';
import type { NativeApi, RawPtr, TensorPtr } from '../../ggml/ffi.ts';
import type { GraphBuilder } from '../../ggml/graph.ts';
import { NativeMemory } from '../../native/native-memory.ts';
import type { Batch } from '../batch.ts';
import { type KvMemory, kvRowBytes, partCount } from '../kv-memory.ts';
import { type Attention, type AttentionLayer, type AttentionRows, equalLayers } from './attention.ts';
import type { AttentionKernel } from './attention-kernel.ts';
import { type RowRun, WorkUnits } from './work-units.ts';

/** `struct layer` and `struct view` of attention-records.h, in bytes. Each record has its own cache line. */
const layerBytes = 64;
const layerField = { view: 0, sinks: 8, part: 16, nextUnit: 24, window: 28, scale: 32, softCap: 36 } as const;
const viewBytes = 128;
const viewField = {
  pool: 0,
  blockStride: 8,
  tables: 16,
  rowOf: 24,
  positions: 32,
  partialOf: 40,
  units: 48,
  partials: 56,
  done: 64,
  scratch: 72,
  unitCount: 80,
  heads: 84,
  blockSize: 88,
} as const;

/** Layers that read the same blocks and the same tokens of them. */
interface Reader {
  readonly group: number;
  /** The work of both kinds of rows. Readers with the same window share it. */
  readonly work: Readonly<Record<AttentionRows, WorkUnits>>;
  /** `struct view` of the rows of q that one call of the kernel computes: the whole batch, or the sampled rows. */
  readonly views: Readonly<Record<AttentionRows, NativeMemory>>;
}

/**
 * Attention by a C kernel that reads the pool in place, through block tables, without a gather and without a mask. A
 * row gets the same bits in any batch, with any number of threads and in any chunks of its prompt (see
 * `paged-attention.c`). So exact and fast numerics are the same here.
 *
 * `prepare` and `rebind` write all records that the kernel reads. The records do not change until the next step. Their addresses
 * never change, so a graph can be computed again after other graphs.
 */
export class NativeAttention implements Attention {
  readonly #memory: KvMemory;
  readonly #kernel: AttentionKernel;
  readonly #headCount: number;
  /** `struct layer` of each layer, for the whole batch and for the sampled rows. */
  readonly #layers: NativeMemory;
  readonly #layerCount: number;
  /** By KV group of these layers, the sequences' block tables, one after another. */
  readonly #tables: NativeMemory[] = [];
  readonly #groups: readonly number[];
  readonly #partials: NativeMemory;
  readonly #done: NativeMemory;
  readonly #scratch: NativeMemory;
  readonly #sinks: NativeMemory[] = [];
  readonly #readers: Reader[] = [];
  /** By layer. */
  readonly #readerOf: readonly Reader[];
  #batch: Batch | undefined;

  constructor(
    device: ComputeDevice,
    memory: KvMemory,
    kernel: AttentionKernel,
    layers: readonly AttentionLayer[] = equalLayers(memory.layout),
  ) {
    const { native } = device;
    this.#memory = memory;
    this.#kernel = kernel;
    this.#headCount = memory.layout.headCountKv * kernel.shape.group;
    this.#layerCount = layers.length;
    this.#layers = new NativeMemory(native, 2 * layers.length * layerBytes);
    this.#partials = new NativeMemory(native);
    this.#done = new NativeMemory(native);
    this.#scratch = new NativeMemory(native, 64 + device.threads * kernel.scratchBytes);
    this.#groups = [...new Set(layers.map(({ group }) => group))];
    for (const group of this.#groups) this.#tables[group] = new NativeMemory(native);
    this.#readerOf = layers.map((layer) => this.#readerFor(device, layer));
    for (const [index, layer] of layers.entries()) this.#writeLayer(native, index, layer);
  }

  #readerFor(device: ComputeDevice, { group, window = 0 }: AttentionLayer): Reader {
    const known = this.#readers.find(({ group: other, work }) => other === group && work.all.window === window);
    if (known !== undefined) return known;
    const { native, threads } = device;
    const { headCountKv } = this.#memory.layout;
    const newWork = (): WorkUnits => new WorkUnits(native, this.#kernel.shape, { headCountKv, threads, window });
    // Without a window, the work depends on the block tables, because requests with equal blocks are computed together.
    const same = window === 0 ? undefined : this.#readers.find(({ work }) => work.all.window === window);
    const work = same?.work ?? { all: newWork(), outputs: newWork() };
    const views = { all: new NativeMemory(native, viewBytes), outputs: new NativeMemory(native, viewBytes) };
    const reader = { group, work, views };
    this.#readers.push(reader);
    return reader;
  }

  #writeLayer(native: NativeApi, index: number, { place, window = 0, scale, softCap, sinks }: AttentionLayer): void {
    const { layout } = this.#memory;
    let sinksAddress = 0;
    if (sinks !== undefined) {
      const copy = new NativeMemory(native, sinks.byteLength);
      new Float32Array(copy.words.buffer).set(sinks);
      this.#sinks.push(copy);
      sinksAddress = copy.address;
    }
    for (const rows of ['all', 'outputs'] as const) {
      const at = recordOf(index, rows);
      this.#layers.setPointer(at + layerField.view, this.#readerOf[index]!.views[rows].address);
      this.#layers.setPointer(at + layerField.sinks, sinksAddress);
      this.#layers.setInt64(at + layerField.part, place * partCount(layout) * layout.blockSize * kvRowBytes(layout));
      this.#layers.bytes.setInt32(at + layerField.window, window, true);
      this.#layers.bytes.setFloat32(at + layerField.scale, scale ?? 1 / Math.sqrt(layout.headDim), true);
      this.#layers.bytes.setFloat32(at + layerField.softCap, softCap ?? 0, true);
    }
  }

  nodeCount(_batch: Batch, layerCount: number): number {
    return layerCount;
  }

  prepare(_graph: GraphBuilder, batch: Batch): void {
    this.#bind(batch);
  }

  rebind(batch: Batch): void {
    this.#bind(batch);
  }

  #bind(batch: Batch): void {
    this.#batch = batch;
    for (let record = 0; record < 2 * this.#layerCount; record++) {
      this.#layers.bytes.setInt32(record * layerBytes + layerField.nextUnit, 0, true);
    }
    const all: RowRun[] = [];
    const outputs: RowRun[] = [];
    this.#layOutTables(batch, all, outputs);
    // In a step with only decodes and drafts every row is sampled, and both kinds of rows have the same plan.
    const isSamePlan = areSameRows(all, outputs);
    const planned = new Set<WorkUnits>();
    for (const { group, work } of this.#readers) {
      if (planned.has(work.all)) continue;
      planned.add(work.all);
      const tables = this.#tables[group]!.words;
      work.all.plan(all, batch.seen, tables);
      if (!isSamePlan) work.outputs.plan(outputs, batch.outputPositions, tables);
    }
    // Layers run one after another, so they share the memory that one call writes and reads.
    for (const { work } of this.#readers) {
      this.#partials.reserve(4 * Math.max(work.all.partialFloats, work.outputs.partialFloats));
      this.#done.reserve(4 * Math.max(work.all.rowCount, work.outputs.rowCount));
    }
    for (const { group, work, views } of this.#readers) {
      this.#writeView(views.all, group, work.all);
      this.#writeView(views.outputs, group, isSamePlan ? work.all : work.outputs);
    }
  }

  attend(graph: GraphBuilder, layer: number, q: TensorPtr, rows: AttentionRows): TensorPtr {
    const { paddedRowCount, outputRows } = assertDefined(this.#batch, 'attention is prepared');
    const count = rows === 'all' ? paddedRowCount : outputRows.length;
    const width = this.#memory.layout.headDim * this.#headCount;
    const record = (this.#layers.address + recordOf(layer, rows)) as RawPtr;
    return graph.custom(q, width, count, this.#kernel.pointer, record, this);
  }

  writeInputs(): void {}

  /** Writes each group's block tables one after another, and collects the rows that read each of them. */
  #layOutTables(batch: Batch, all: RowRun[], outputs: RowRun[]): void {
    const { blockSize } = this.#memory.layout;
    let blocks = 0;
    for (const { kvLength } of batch.sequences) blocks += Math.ceil(kvLength / blockSize);
    for (const group of this.#groups) this.#tables[group]!.reserve(blocks * 4);
    let table = 0;
    for (const { plan, firstRow, rowCount, kvLength, outputIndex, outputCount } of batch.sequences) {
      const count = Math.ceil(kvLength / blockSize);
      for (const group of this.#groups) {
        const source = plan.blockTables[group];
        assert(source !== undefined && source.length >= count, 'a block table that covers all KV that is read');
        this.#tables[group]!.words.set(source.ids.subarray(0, count), table);
      }
      all.push({ table, firstRow, rowCount });
      if (outputIndex !== undefined) outputs.push({ table, firstRow: outputIndex, rowCount: outputCount });
      table += count;
    }
  }

  #writeView(record: NativeMemory, group: number, work: WorkUnits): void {
    const { bytes } = record;
    record.setPointer(viewField.pool, this.#memory.baseAddress);
    record.setInt64(viewField.blockStride, this.#memory.blockBytes);
    record.setPointer(viewField.tables, this.#tables[group]!.address);
    record.setPointer(viewField.rowOf, work.rowOf.address);
    record.setPointer(viewField.positions, work.positions.address);
    record.setPointer(viewField.partialOf, work.partialOf.address);
    record.setPointer(viewField.units, work.units.address);
    record.setPointer(viewField.partials, this.#partials.address);
    record.setPointer(viewField.done, this.#done.address);
    record.setPointer(viewField.scratch, this.#scratch.address);
    bytes.setInt32(viewField.unitCount, work.unitCount, true);
    bytes.setInt32(viewField.heads, this.#memory.layout.headCountKv, true);
    bytes.setInt32(viewField.blockSize, this.#memory.layout.blockSize, true);
  }
}

/** The offset of a layer's record. */
const recordOf = (layer: number, rows: AttentionRows): number => (2 * layer + (rows === 'all' ? 0 : 1)) * layerBytes;

function areSameRows(all: readonly RowRun[], outputs: readonly RowRun[]): boolean {
  if (all.length !== outputs.length) return false;
  for (let i = 0; i < all.length; i++)
    if (all[i]!.rowCount !== outputs[i]!.rowCount || all[i]!.firstRow !== outputs[i]!.firstRow) return false;
  return true;
}
