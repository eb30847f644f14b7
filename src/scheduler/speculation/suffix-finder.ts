import type { TokenBuffer } from '../../core/tokens.ts';
import type { Continuation, ContinuationFinder } from './continuation.ts';
import type { SuffixOptions } from './options.ts';
import type { ResponseCache, ResponseGeneration } from './response-cache.ts';
import { restart, type SuffixPlaces, SuffixTree } from './suffix-tree.ts';

/** The end of the text in outputs of one generation. */
interface CachedPlaces {
  generation: ResponseGeneration;
  places: SuffixPlaces;
  /** The length of the tree and of the text for which they were found. */
  treeLength: number;
  textLength: number;
}

/**
 * Suffix decoding: the text continues as it most frequently did after its longest suffix that occurred before, in the own text or in
 * outputs of earlier requests. If both have equally long ones, the own text is taken, then the younger outputs.
 */
export class SuffixFinder implements ContinuationFinder {
  readonly #tokens: TokenBuffer;
  readonly #options: SuffixOptions;
  readonly #salt: string | undefined;
  readonly #cache: ResponseCache | undefined;
  readonly #own: SuffixTree;
  #written = 0;
  #younger: CachedPlaces | undefined;
  #older: CachedPlaces | undefined;

  constructor(tokens: TokenBuffer, options: SuffixOptions, salt: string | undefined, cache: ResponseCache | undefined) {
    this.#tokens = tokens;
    this.#options = options;
    this.#salt = salt;
    this.#cache = cache;
    this.#own = new SuffixTree(options.suffixDecodingMaxTreeDepth, tokens.capacity);
    this.#own.begin(this.#own.addRoot());
  }

  find(): Continuation | undefined {
    const text = this.#tokens.view();
    const end = Math.min(text.length, this.#written + WRITTEN_MAX);
    while (this.#written < end) this.#own.append(text[this.#written++]!);
    if (end < text.length) return undefined;
    const cache = this.#cache;
    if (cache !== undefined) {
      // A generation gets older with the places in it.
      if (cache.older !== undefined && this.#younger?.generation === cache.older) {
        this.#older = this.#younger;
        this.#younger = undefined;
      }
      this.#younger = this.#follow(this.#younger, cache.younger, text);
      this.#older = this.#follow(this.#older, cache.older, text);
    }
    return this.#continue();
  }

  #continue(): Continuation | undefined {
    let tree = this.#own;
    let places = this.#own.written;
    for (const cached of [this.#younger, this.#older]) {
      if (cached === undefined || cached.places.length <= places.length) continue;
      tree = cached.generation.tree;
      places = cached.places;
    }
    const { length } = places;
    // A long suffix may have occurred only as the end of an output.
    for (let used = matchFor(length, this.#options); used > 0; used--) {
      const count = draftsFor(used, this.#options);
      if (count === 0) continue;
      const continuation = tree.continuation(places, used, count, this.#options.suffixDecodingMinTokenProb);
      if (continuation !== undefined) return { length: used, ...continuation };
      if (!tree.isEnd(places, used)) return undefined;
    }
    return undefined;
  }

  #follow(
    known: CachedPlaces | undefined,
    generation: ResponseGeneration | undefined,
    text: Int32Array,
  ): CachedPlaces | undefined {
    const root = generation?.roots.get(this.#salt);
    if (generation === undefined || root === undefined) return undefined;
    const { tree } = generation;
    let cached = known;
    if (cached?.generation !== generation)
      cached = { generation, places: tree.places(), treeLength: -1, textLength: 0 };
    const longest = tree.depthMax - 1;
    if (cached.treeLength !== tree.length || text.length - cached.textLength > longest) {
      restart(cached.places, root);
      cached.textLength = Math.max(text.length - longest, 0);
      cached.treeLength = tree.length;
    }
    while (cached.textLength < text.length) tree.follow(cached.places, text[cached.textLength++]!);
    return cached;
  }
}

/**
 * As in vLLM, a match and its drafts are together at most as long as the tree is deep. So of a long match, only a part is used: the
 * longest one with the most drafts.
 */
function matchFor(length: number, options: SuffixOptions): number {
  let best = length;
  for (let used = length - 1; used > 0; used--) if (draftsFor(used, options) > draftsFor(best, options)) best = used;
  return best;
}

function draftsFor(used: number, options: SuffixOptions): number {
  const { numSpeculativeTokens, suffixDecodingMaxTreeDepth: depthMax, suffixDecodingMaxSpecFactor: factor } = options;
  // The factor may be a fraction that is not exact, as 0.1.
  return Math.max(Math.min(numSpeculativeTokens, Math.floor(factor * used + 1e-6), depthMax - used), 0);
}

/** A long prompt is written in several steps, because each delays its step. */
const WRITTEN_MAX = 8192;
