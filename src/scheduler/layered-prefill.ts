import { assert } from '../base/assert.ts';
import type { BlockId } from '../core/ids.ts';
import { areSameSpans, type LayerRange, type Span } from '../core/step.ts';
import type { RequestState } from './request-state.ts';
import type { Slice, SliceOptions } from './slice-sizes.ts';
import type { StepLoad } from './step-load.ts';

/** Chooses the size of a chunk by layers; see `Pace.sliceOf`. */
export interface SliceChoice {
  sliceOf(load: StepLoad, options: SliceOptions): Slice | undefined;
}

/** A chunk of a prompt of which the layers before `nextLayer` are computed. */
interface Chunk {
  readonly state: RequestState;
  readonly spans: readonly Span[];
  readonly tokens: number;
  /** How many layers a step computes. */
  readonly layers: number;
  /** By KV group, the blocks that the chunk reads and writes. */
  readonly tables: readonly Int32Array[];
  nextLayer: number;
}

/**
 * The chunk of a prompt that is computed a few layers at a time, each step some more, while streams run (ADR 27).
 *
 *   step        1      2      3      4
 *   streams   all    all    all    all       layers
 *   chunk     0-6    7-13  14-20  21-27
 *
 * A step with streams may take about three times as long as their decodes alone. There are two ways to use this time. A
 * small chunk can be computed together with the decodes, which reads the weights once. A large chunk costs less for each token:
 * kernels are faster with many rows, a chunk reads its context and each expert once. Only some of its layers fit into one step.
 *
 * For the KV core nothing of the chunk is computed before the step with the last layer: after each other step the scheduled
 * tokens are dropped (`KvCache.dropTokens`) and scheduled again. If a step then schedules other tokens or blocks, or a block was
 * invalid or loaded in the meantime, the chunk begins again with the first layer.
 */
export class LayeredPrefill {
  readonly layerCount: number;
  readonly #choice: SliceChoice;
  #chunk: Chunk | undefined;

  constructor(layerCount: number, choice: SliceChoice) {
    assert(layerCount > 0, 'a model has layers');
    this.layerCount = layerCount;
    this.#choice = choice;
  }

  /** The slice of the chunk in progress, or of a new chunk; undefined: the step computes all layers of its prompt tokens. */
  sliceOf(state: RequestState, load: StepLoad, options: Omit<SliceOptions, 'layerCount'>): Slice | undefined {
    const chunk = this.chunkOf(state);
    if (chunk !== undefined) return chunk;
    if (options.tokensMax < 1) return undefined;
    return this.#choice.sliceOf(load, { ...options, layerCount: this.layerCount });
  }

  /** The request's chunk in progress; undefined: it has none. */
  chunkOf(state: RequestState): Slice | undefined {
    return this.#chunk?.state === state ? this.#chunk : undefined;
  }

  /**
   * The step computes so many layers of these tokens. Returns which: those that follow if the chunk in progress has the same tokens
   * and blocks, else the first ones.
   */
  next(state: RequestState, spans: readonly Span[], { layers }: Slice): LayerRange {
    assert(layers > 0, 'a step computes a layer');
    if (this.chunkOf(state) === undefined || !this.#isSame(state, spans)) this.#chunk = newChunk(state, spans, layers);
    const chunk = this.#chunk!;
    const first = chunk.nextLayer;
    chunk.nextLayer = Math.min(first + layers, this.layerCount);
    return { first, end: chunk.nextLayer };
  }

  /** The result of a step is applied that had layers of this request's chunk; `isComputed`: the step has not left it out. */
  applied(state: RequestState, isComputed: boolean): void {
    const chunk = this.#chunk;
    if (chunk?.state !== state) return;
    if (!isComputed || chunk.nextLayer === this.layerCount) this.#chunk = undefined;
  }

  /** The content of these blocks is invalid or has changed, or a load will change it. */
  changed(blocks: Iterable<BlockId>): void {
    const { tables } = this.#chunk ?? {};
    if (tables === undefined) return;
    for (const block of blocks)
      if (tables.some((table) => table.includes(block))) {
        this.#chunk = undefined;
        return;
      }
  }

  /** The request has ended or was preempted. */
  released(state: RequestState): void {
    if (this.#chunk?.state === state) this.#chunk = undefined;
  }

  #isSame(state: RequestState, spans: readonly Span[]): boolean {
    const { spans: before, tables } = this.#chunk!;
    return (
      areSameSpans(before, spans) &&
      tables.every((table, group) => {
        const { ids, length } = state.kv.tables[group]!;
        return length === table.length && table.every((block, index) => ids[index] === block);
      })
    );
  }
}

function newChunk(state: RequestState, spans: readonly Span[], layers: number): Chunk {
  return {
    state,
    spans: spans.map((span) => ({ ...span })),
    tokens: spans.reduce((sum, { start, end }) => sum + end - start, 0),
    layers,
    tables: state.kv.tables.map(({ ids, length }) => ids.slice(0, length)),
    nextLayer: 0,
  };
}
