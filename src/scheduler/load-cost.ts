import type { Span } from '../core/step.ts';
import { StepCost } from './step-cost.ts';
import { addPrompt, emptyLoad, PROMPT_SHAPE, promptFeatures, type StepLoad } from './step-load.ts';

/** How many blocks of each place: `host`, `disk`, ... */
export type PlaceCounts = ReadonlyMap<string, number>;

/** What computing tokens and loading blocks would take now. */
export interface LoadPrices {
  /** False until enough steps were measured: then all blocks are loaded. */
  readonly isReady: boolean;
  /** Milliseconds until these tokens of one request are computed. */
  computeMs(spans: readonly Span[]): number;
  /** Milliseconds until these blocks are loaded; 0 for places of which too little is known. */
  loadMs(blocks: PlaceCounts): number;
}

/** A load in progress. */
export interface LoadTiming {
  readonly blocks: PlaceCounts;
  /** By place: the blocks of the load, and of loads that were ordered before and are not over. */
  readonly queued: PlaceCounts;
}

/**
 * Learns from measured durations what computing and loading take. Loading has one model for each place: a fixed time, and a
 * time for each block that is in progress there when the load is ordered. Deterministic: time is an argument.
 */
export class LoadCost implements LoadPrices {
  readonly #chunk: number;
  readonly #compute = new StepCost(PROMPT_SHAPE);
  readonly #places = new Map<string, StepCost>();
  /** Blocks of loads in progress, by place. */
  readonly #open = new Map<string, number>();

  /** `chunk`: the most tokens of a request in one step. */
  constructor(chunk: number) {
    this.#chunk = chunk;
  }

  get isReady(): boolean {
    return this.#compute.observations >= OBSERVATIONS_MIN;
  }

  computeMs(spans: readonly Span[]): number {
    const load = emptyLoad();
    let steps = 0;
    for (const { start, end } of spans) {
      addPrompt(load, start, end);
      const chunks = Math.ceil((end - start) / this.#chunk);
      steps += (end - start) / this.#chunk;
      // The chunks end at `start + chunk`, `start + 2 chunk`, ... and `end`.
      load.promptReach += (chunks - 1) * (start + (this.#chunk * chunks) / 2);
    }
    const [, ...features] = promptFeatures(load);
    return this.#compute.predict([Math.ceil(steps), ...features]);
  }

  loadMs(blocks: PlaceCounts): number {
    let ms = 0;
    for (const [place, count] of blocks)
      if (count > 0) ms += this.#placeMs(place, count + (this.#open.get(place) ?? 0));
    return ms;
  }

  /** `ms` is undefined if the duration is not only computing. */
  observeStep(load: StepLoad, ms: number | undefined): void {
    if (ms !== undefined && load.promptTokens > 0) this.#compute.observe(promptFeatures(load), ms);
  }

  /** A load of these blocks is ordered; `end` follows. */
  begin(blocks: PlaceCounts): LoadTiming {
    const queued = new Map<string, number>();
    for (const [place, count] of blocks) {
      queued.set(place, count + (this.#open.get(place) ?? 0));
      this.#open.set(place, queued.get(place)!);
    }
    return { blocks, queued };
  }

  /** The load is over, `ms` after its order. Undefined: the duration says nothing about the places. */
  end({ blocks, queued }: LoadTiming, ms: number | undefined): void {
    for (const [place, count] of blocks) this.#open.set(place, this.#open.get(place)! - count);
    if (ms === undefined) return;
    // A load from several places: each has a part of the time, as predicted.
    const predicted = [...queued].map(([place, count]) => this.#modelOf(place).predict([1, count]));
    const isKnown = predicted.every((part) => part > 0);
    const parts = isKnown ? predicted : [...blocks.values()];
    const sum = parts.reduce((total, part) => total + part, 0);
    for (const [i, [place, count]] of [...queued].entries())
      this.#modelOf(place).observe([1, count], (ms * parts[i]!) / sum);
  }

  checkInvariants(): void {
    this.#compute.checkInvariants();
    for (const model of this.#places.values()) model.checkInvariants();
  }

  #placeMs(place: string, blocks: number): number {
    const model = this.#places.get(place);
    return model === undefined || model.observations < OBSERVATIONS_MIN ? 0 : model.predict([1, blocks]);
  }

  #modelOf(place: string): StepCost {
    const known = this.#places.get(place);
    if (known !== undefined) return known;
    const model = new StepCost(LOAD_SHAPE);
    this.#places.set(place, model);
    return model;
  }
}

export function countPlaces(blocks: Iterable<{ readonly place: string }>): Map<string, number> {
  const counts = new Map<string, number>();
  for (const { place } of blocks) counts.set(place, (counts.get(place) ?? 0) + 1);
  return counts;
}

/** The fixed time of a typical load is that of ten blocks. */
const LOAD_SHAPE = [10, 1];
/** A model that has learned from fewer steps or loads does not decide. */
export const OBSERVATIONS_MIN = 3;
