import { type BlockPlace, placeName } from '../core/block-place.ts';
import type { Span } from '../core/step.ts';
import type { KvCache } from '../kv/kv-cache.ts';
import type { FoundPlace, Match } from './external-kv.ts';
import { countPlaces, type LoadPrices, type PlaceCounts } from './load-cost.ts';
import type { RequestState } from './request-state.ts';

/** Whether computing and loading can take place at the same time: then the slower of the two counts, else their sum. */
export type Overlap = 'none' | 'race';

/** Blocks that could be loaded, ascending. The tokens to be computed if all of them are loaded, and if none is. */
interface Candidate {
  readonly blocks: readonly FoundPlace[];
  readonly spans: readonly Span[];
  readonly withoutLoads: readonly Span[];
}

interface Choice {
  readonly ms: number;
  readonly blocks: readonly FoundPlace[];
}

/**
 * Decides which of the blocks that a connector promises are loaded: those whose load takes less time than computing
 * their tokens. A token costs more, the more tokens it attends to. So in a model with full attention, the blocks before
 * a cut are computed and the blocks after it are loaded:
 *
 *   found      ####.####  ####          # = a block that a connector promises
 *   chosen     ^^^^^####^^####^^        ^ = tokens that are computed
 *              |-cut|
 *
 * In models with other groups, all blocks of a place are loaded or none. Places of which no block is chosen are measured
 * again from time to time with a few blocks, because their speed may have changed.
 */
export class LoadChoice {
  readonly #kv: KvCache;
  readonly #prices: LoadPrices;
  /** Whether the front of a prompt can be computed without the blocks after it. */
  readonly #canCut: boolean;
  /** By place: admissions since its last load that found blocks there and loaded none of them. */
  readonly #skipped = new Map<string, number>();
  readonly #probeAfter: number;

  /** `probeAfter`: after so many such admissions less one, the next one loads some blocks. */
  constructor(kv: KvCache, prices: LoadPrices, probeAfter = PROBE_AFTER) {
    this.#kv = kv;
    this.#prices = prices;
    this.#probeAfter = probeAfter;
    this.#canCut = kv.parts.spec.groups.every(({ kind }) => kind === 'full');
  }

  /** Called before the admission of a request that has no blocks; `admitted` follows if there is room. O(blocks). */
  choose(state: RequestState, match: Match, overlap: Overlap): Match {
    if (match.blocks.length === 0 || !this.#prices.isReady) return match;
    const withoutLoads = this.#kv.preview(state.kv, []).spans;
    const choices = alternatives(match.blocks).flatMap((found) => {
      const { spans, loads } = this.#kv.preview(state.kv, found);
      const blocks = this.#inOrder(found, loads);
      return this.#cuts({ blocks, spans, withoutLoads }, overlap);
    });
    const chosen = this.#best(choices, withoutLoads);
    return { ...match, blocks: this.#withProbes(state, match.blocks, chosen) };
  }

  /** A request was admitted, which found these blocks and loads `loads`. O(blocks). */
  admitted(found: Match, loads: readonly BlockPlace[]): void {
    if (found.blocks.length === 0) return;
    const loading = new Set(loads.map(placeName));
    const loaded = countsOf(found.blocks.filter((block) => loading.has(placeName(block))));
    for (const place of countsOf(found.blocks).keys())
      this.#skipped.set(place, loaded.has(place) ? 0 : (this.#skipped.get(place) ?? 0) + 1);
  }

  /** For a request in a race: which of the blocks that it did not load are loaded now. O(blocks). */
  chooseMore(state: RequestState, match: Match, overlap: Overlap): Match {
    const withoutLoads = state.kv.rest() as Span[];
    const blocks = this.#inOrder(match.blocks, match.blocks);
    let spans = withoutLoads;
    for (const block of blocks)
      spans = [...clip(spans, 0, this.#start(block)), ...clip(spans, this.#end(block), Infinity)];
    return { ...match, blocks: this.#best(this.#cuts({ blocks, spans, withoutLoads }, overlap), withoutLoads) };
  }

  /** The first choice is to load all blocks. */
  #best(choices: Choice[], withoutLoads: readonly Span[]): readonly FoundPlace[] {
    choices.push({ ms: this.#prices.computeMs(withoutLoads), blocks: [] });
    const [all] = choices;
    let best = all!;
    for (const choice of choices) if (choice.ms < best.ms) best = choice;
    // A load leaves the processor to other requests, so computing must be clearly faster.
    return best.ms > CLEARLY * all!.ms ? all!.blocks : best.blocks;
  }

  /** The loads after each cut. First the cut at token 0: all blocks are loaded. */
  #cuts({ blocks, spans, withoutLoads }: Candidate, overlap: Overlap): Choice[] {
    const counts = countsOf(blocks);
    const stride = this.#canCut ? Math.ceil(blocks.length / CUTS_MAX) : blocks.length;
    const choices: Choice[] = [];
    for (let i = 0; i < blocks.length; i++) {
      const cut = i === 0 ? 0 : this.#end(blocks[i - 1]!);
      if (i % stride === 0 && this.#end(blocks[i]!) > cut) {
        const computed = [...clip(withoutLoads, 0, cut), ...clip(spans, cut, Infinity)];
        const ms = this.#timeOf(computed, this.#start(blocks[i]!), counts, overlap);
        choices.push({ ms, blocks: blocks.slice(i) });
      }
      const { place } = blocks[i]!.found;
      counts.set(place, counts.get(place)! - 1);
    }
    return choices;
  }

  /** Milliseconds to compute these tokens and load these blocks, of which the first starts at token `firstLoad`. */
  #timeOf(computed: readonly Span[], firstLoad: number, blocks: PlaceCounts, overlap: Overlap): number {
    const loadMs = this.#prices.loadMs(blocks);
    if (overlap === 'none') return loadMs + this.#prices.computeMs(computed);
    const front = this.#prices.computeMs(clip(computed, 0, firstLoad));
    return Math.max(loadMs, front) + this.#prices.computeMs(clip(computed, firstLoad, Infinity));
  }

  /** Adds some blocks of places that were skipped too often. */
  #withProbes(state: RequestState, found: readonly FoundPlace[], chosen: readonly FoundPlace[]): readonly FoundPlace[] {
    const loaded = new Set(chosen.map(({ found: { place } }) => place));
    const isDue = (place: string): boolean =>
      !loaded.has(place) && (this.#skipped.get(place) ?? 0) + 1 >= this.#probeAfter;
    const due = [...countsOf(found).keys()].filter(isDue);
    if (due.length === 0) return chosen;
    // The planner may need one block of another place for each of these.
    if (!this.#canCut) return found;
    const needed = this.#inOrder(found, this.#kv.preview(state.kv, found).loads);
    const probes = due.flatMap((place) => {
      const ofPlace = needed.filter((block) => block.found.place === place);
      return ofPlace.slice(ofPlace.length - Math.ceil(ofPlace.length / PROBE_SHARE));
    });
    return [...chosen, ...probes];
  }

  /** The blocks that the planner needs, in the order of their ends. */
  #inOrder(found: readonly FoundPlace[], loads: readonly BlockPlace[]): FoundPlace[] {
    const needed = new Set(loads.map(placeName));
    return found.filter((place) => needed.has(placeName(place))).sort((a, b) => this.#end(a) - this.#end(b));
  }

  #start({ group, index }: BlockPlace): number {
    return index * this.#kv.parts.spec.groups[group]!.blockSize;
  }

  #end({ group, index }: BlockPlace): number {
    return (index + 1) * this.#kv.parts.spec.groups[group]!.blockSize;
  }
}

/** All found blocks, and all without one of the places. */
function alternatives(found: readonly FoundPlace[]): (readonly FoundPlace[])[] {
  const places = new Set(found.map((block) => block.found.place));
  if (places.size === 1) return [found];
  return [found, ...[...places].map((place) => found.filter((block) => block.found.place !== place))];
}

const countsOf = (blocks: readonly FoundPlace[]): Map<string, number> => countPlaces(blocks.map(({ found }) => found));

/** The parts of the spans in [from, to). */
function clip(spans: readonly Span[], from: number, to: number): Span[] {
  const parts: Span[] = [];
  for (const span of spans) {
    const part = { start: Math.max(span.start, from), end: Math.min(span.end, to) };
    if (part.start < part.end) parts.push(part as Span);
  }
  return parts;
}

/** Any other choice than to load all blocks must take less than this part of the time. */
const CLEARLY = 0.9;
/** The most cuts that are compared. */
const CUTS_MAX = 32;
/** A place of which no block was loaded so often is measured again. */
export const PROBE_AFTER = 32;
/** Then one of so many blocks is loaded. */
const PROBE_SHARE = 4;
