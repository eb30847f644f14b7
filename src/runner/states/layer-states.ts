import { assert } from '../../base/assert.ts';
import type { BlockId } from '../../core/ids.ts';
import type { NativeApi, TensorPtr } from '../../ggml/ffi.ts';
import type { GraphBuilder } from '../../ggml/graph.ts';
import { NativeMemory } from '../../native/native-memory.ts';
import type { LayerKv } from '../kv-groups.ts';
import type { KvMemory } from '../kv-memory.ts';
import type { StateSegment } from './segments.ts';

/** The states of one layer in a step. */
export interface LayerStates {
  /** The address of `struct state_layer` of states.h, for kernels. It is the same in every step. On a CPU only. */
  readonly address: number;
  /** For operations of ggml: a graph that depends on the segments calls `fixSegments`. */
  readonly segments: readonly StateSegment[];
  /** The next step then needs another graph (`StateTables.isFixed`). */
  fixSegments(): void;
  /** F32 `[ne0, ne1]`: a part of this layer's state in a block, from an element on. */
  view(graph: GraphBuilder, block: BlockId, shape: readonly [ne0: number, ne1: number], element?: number): TensorPtr;
}

/** `struct segment`, `struct state_rows` and `struct state_layer`, in bytes. */
const segmentBytes = 24;
const segmentField = { read: 0, write: 8, firstRow: 16, rowCount: 20 } as const;
const rowsField = { segments: 0, count: 8 } as const;
const layerField = { rows: 0, offset: 8 } as const;

interface GroupRecords {
  readonly segments: NativeMemory;
  readonly rows: NativeMemory;
}

/** The part of `KvMemory` that has the states. */
export type StateMemory = Pick<KvMemory, 'isHost' | 'addressOf' | 'stateView'>;

/** The states of a stage's layers: which blocks each layer reads and writes in the step of the last `begin` or `rebind`. */
export class StateTables {
  readonly #memory: StateMemory;
  readonly #groups = new Map<number, GroupRecords>();
  readonly #layers = new Map<number, NativeMemory>();
  readonly #places: readonly LayerKv[];
  #segments: readonly (readonly StateSegment[])[] = [];
  #isFixed: boolean = false;

  constructor(native: NativeApi, memory: StateMemory, places: readonly LayerKv[]) {
    this.#memory = memory;
    this.#places = places;
    for (const [index, place] of places.entries()) {
      if (place.kind !== 'state') continue;
      const records = this.#groups.get(place.group) ?? {
        segments: new NativeMemory(native),
        rows: new NativeMemory(native, 16),
      };
      this.#groups.set(place.group, records);
      const layer = new NativeMemory(native, 16);
      layer.setPointer(layerField.rows, records.rows.address);
      layer.setInt64(layerField.offset, place.offset);
      this.#layers.set(index, layer);
    }
  }

  /** For a new graph. `segments`: by KV group, in the order of the batch. */
  begin(segments: readonly (readonly StateSegment[])[]): void {
    this.#isFixed = false;
    this.#bind(segments);
  }

  /** The graph of the last `begin` depends on the segments of its step, so it fits no other step. */
  get isFixed(): boolean {
    return this.#isFixed;
  }

  /** For another step with a graph that is not fixed. */
  rebind(segments: readonly (readonly StateSegment[])[]): void {
    this.#bind(segments);
  }

  /** Of the layer with this index among the stage's layers. */
  layer(index: number): LayerStates {
    const place = this.#places[index];
    assert(place?.kind === 'state', 'a layer with a state');
    const record = this.#layers.get(index)!;
    const memory = this.#memory;
    return {
      address: record.address,
      segments: this.#segments[place.group]!,
      fixSegments: () => {
        this.#isFixed = true;
      },
      view: (graph, block, shape, element = 0) => memory.stateView(graph, block, place.offset + 4 * element, shape),
    };
  }

  #bind(segments: readonly (readonly StateSegment[])[]): void {
    this.#segments = segments;
    if (!this.#memory.isHost) return;
    for (const [group, records] of this.#groups) {
      const ofGroup = segments[group]!;
      records.segments.reserve(ofGroup.length * segmentBytes);
      for (const [i, { firstRow, rowCount, read, write }] of ofGroup.entries()) {
        const at = i * segmentBytes;
        const readAddress = read === undefined ? 0 : this.#memory.addressOf(read);
        records.segments.setPointer(at + segmentField.read, readAddress);
        records.segments.setPointer(at + segmentField.write, this.#memory.addressOf(write));
        records.segments.bytes.setInt32(at + segmentField.firstRow, firstRow, true);
        records.segments.bytes.setInt32(at + segmentField.rowCount, rowCount, true);
      }
      records.rows.setPointer(rowsField.segments, records.segments.address);
      records.rows.setInt64(rowsField.count, ofGroup.length);
    }
  }
}
