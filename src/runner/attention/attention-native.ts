import { assert } from '../../base/assert.ts';
import type { ComputeDevice } from '../../ggml/device.ts';
import type { RawPtr, TensorPtr } from '../../ggml/ffi.ts';
import type { GraphBuilder } from '../../ggml/graph.ts';
import { NativeMemory } from '../../native/native-memory.ts';
import type { Batch } from '../batch.ts';
import { type KvMemory, kvRowBytes } from '../kv-memory.ts';
import type { Attention, AttentionRows } from './attention.ts';
import type { AttentionKernel } from './attention-kernel.ts';
import { type RowRun, WorkUnits } from './work-units.ts';

/** `struct layer` and `struct view` of attention-records.h, in bytes. Each layer's record has its own cache line. */
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
} as const;

/** Differences between models besides their shapes. */
export interface AttentionVariant {
  /** Tokens that a row sees, itself included; default: all. */
  readonly window?: number;
  /** Scores become `cap * tanh(score / cap)`. */
  readonly softCap?: number;
  /** A score per query head, which is added to the softmax without a value. */
  readonly sinks?: Float32Array;
}

/** The rows of q that one call of the kernel computes: the whole batch, or the sampled rows. */
interface View {
  readonly record: NativeMemory;
  readonly work: WorkUnits;
}

/**
 * Attention by a C kernel that reads the pool in place, through block tables, without a gather and without a mask. A
 * row gets the same bits in any batch, with any number of threads and in any chunks of its prompt (see
 * `paged-attention.c`). So exact and fast numerics are the same here.
 *
 * `prepare` and `attend` write all records that the kernel reads. The records do not change until the next step.
 */
export class NativeAttention implements Attention {
  readonly #memory: KvMemory;
  readonly #kernel: AttentionKernel;
  readonly #headCount: number;
  readonly #layers: NativeMemory;
  readonly #tables: NativeMemory;
  readonly #partials: NativeMemory;
  readonly #done: NativeMemory;
  readonly #scratch: NativeMemory;
  readonly #sinks: NativeMemory | undefined;
  readonly #views: Readonly<Record<AttentionRows, View>>;
  #batch: Batch | undefined;

  constructor(device: ComputeDevice, memory: KvMemory, kernel: AttentionKernel, variant: AttentionVariant = {}) {
    const { native } = device;
    const { layerCount, headCountKv, headDim } = memory.layout;
    this.#memory = memory;
    this.#kernel = kernel;
    this.#headCount = headCountKv * kernel.shape.group;
    this.#layers = new NativeMemory(native, layerCount * layerBytes);
    this.#tables = new NativeMemory(native);
    this.#partials = new NativeMemory(native);
    this.#done = new NativeMemory(native);
    this.#scratch = new NativeMemory(native, 64 + device.threads * kernel.scratchBytes);
    const { threads } = device;
    const window = variant.window ?? 0;
    const newView = (): View => ({
      record: new NativeMemory(native, viewBytes),
      work: new WorkUnits(native, kernel.shape, { headCountKv, threads, window }),
    });
    this.#views = { all: newView(), outputs: newView() };
    if (variant.sinks !== undefined) {
      this.#sinks = new NativeMemory(native, variant.sinks.byteLength);
      new Float32Array(this.#sinks.words.buffer).set(variant.sinks);
    }
    for (let layer = 0; layer < layerCount; layer++) {
      const at = layer * layerBytes;
      this.#layers.setPointer(at + layerField.sinks, this.#sinks?.address ?? 0);
      this.#layers.setInt64(at + layerField.part, layer * 2 * memory.layout.blockSize * kvRowBytes(memory.layout));
      this.#layers.bytes.setInt32(at + layerField.window, window, true);
      this.#layers.bytes.setFloat32(at + layerField.scale, 1 / Math.sqrt(headDim), true);
      this.#layers.bytes.setFloat32(at + layerField.softCap, variant.softCap ?? 0, true);
    }
  }

  nodeCount(_batch: Batch, layerCount: number): number {
    return layerCount;
  }

  prepare(_graph: GraphBuilder, batch: Batch): void {
    this.#bind(batch);
  }

  rebind(batch: Batch): boolean {
    this.#bind(batch);
    const { layerCount } = this.#memory.layout;
    for (let layer = 0; layer < layerCount; layer++) {
      this.#layers.bytes.setInt32(layer * layerBytes + layerField.nextUnit, 0, true);
    }
    return true;
  }

  #bind(batch: Batch): void {
    this.#batch = batch;
    const all: RowRun[] = [];
    const outputs: RowRun[] = [];
    this.#layOutTables(batch, all, outputs);
    // Layers run one after another, and so do views, so they share the memory that one call writes and reads.
    const { all: whole, outputs: sampled } = this.#views;
    whole.work.plan(all, batch.positions, this.#tables.words);
    // In a step with only decodes every row is sampled, and both views have the same plan.
    const isSamePlan = areSameRows(all, outputs);
    if (!isSamePlan) sampled.work.plan(outputs, batch.outputPositions, this.#tables.words);
    this.#partials.reserve(4 * Math.max(whole.work.partialFloats, sampled.work.partialFloats));
    this.#done.reserve(4 * Math.max(whole.work.rowCount, sampled.work.rowCount));
    this.#writeView(whole, whole.work);
    this.#writeView(sampled, isSamePlan ? whole.work : sampled.work);
  }

  attend(graph: GraphBuilder, layer: number, q: TensorPtr, rows: AttentionRows): TensorPtr {
    const at = layer * layerBytes;
    this.#layers.setPointer(at + layerField.view, this.#views[rows].record.address);
    this.#layers.bytes.setInt32(at + layerField.nextUnit, 0, true);
    const count = rows === 'all' ? this.#batch?.paddedRowCount : this.#batch?.outputRows.length;
    const width = this.#memory.layout.headDim * this.#headCount;
    const record = (this.#layers.address + at) as RawPtr;
    return graph.custom(q, width, count ?? 0, this.#kernel.pointer, record, this);
  }

  writeInputs(): void {}

  /** Writes the block tables one after another, and collects the rows that read each of them. */
  #layOutTables(batch: Batch, all: RowRun[], outputs: RowRun[]): void {
    const { blockSize } = this.#memory.layout;
    let blocks = 0;
    for (const { kvLength } of batch.sequences) blocks += Math.ceil(kvLength / blockSize);
    this.#tables.reserve(blocks * 4);
    let table = 0;
    for (const { plan, firstRow, rowCount, kvLength, outputIndex } of batch.sequences) {
      const count = Math.ceil(kvLength / blockSize);
      const source = plan.blockTables[0];
      assert(source !== undefined && source.length >= count, 'a block table that covers all KV that is read');
      this.#tables.words.set(source.ids.subarray(0, count), table);
      all.push({ table, firstRow, rowCount });
      if (outputIndex !== undefined) outputs.push({ table, firstRow: outputIndex, rowCount: 1 });
      table += count;
    }
  }

  #writeView({ record }: View, work: WorkUnits): void {
    const { bytes } = record;
    record.setPointer(viewField.pool, this.#memory.baseAddress);
    record.setInt64(viewField.blockStride, this.#memory.blockBytes);
    record.setPointer(viewField.tables, this.#tables.address);
    record.setPointer(viewField.rowOf, work.rowOf.address);
    record.setPointer(viewField.positions, work.positions.address);
    record.setPointer(viewField.partialOf, work.partialOf.address);
    record.setPointer(viewField.units, work.units.address);
    record.setPointer(viewField.partials, this.#partials.address);
    record.setPointer(viewField.done, this.#done.address);
    record.setPointer(viewField.scratch, this.#scratch.address);
    bytes.setInt32(viewField.unitCount, work.unitCount, true);
    bytes.setInt32(viewField.heads, this.#memory.layout.headCountKv, true);
  }
}

function areSameRows(all: readonly RowRun[], outputs: readonly RowRun[]): boolean {
  if (all.length !== outputs.length) return false;
  for (const [i, run] of all.entries()) {
    if (run.rowCount !== 1 || run.firstRow !== outputs[i]!.firstRow) return false;
  }
  return true;
}
