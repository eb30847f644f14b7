import { assert } from '../src/base/assert.ts';
import type { Prng } from '../src/base/prng.ts';
import type { RequestState } from '../src/scheduler/request-state.ts';
import type { Continuation } from '../src/scheduler/speculation/continuation.ts';
import type { SuffixOptions } from '../src/scheduler/speculation/options.ts';
import { ResponseCache } from '../src/scheduler/speculation/response-cache.ts';
import type { Speculator } from '../src/scheduler/speculation/speculator.ts';
import { SuffixFinder } from '../src/scheduler/speculation/suffix-finder.ts';

/** `suffix_decoding_max_tree_depth`, `suffix_decoding_max_cached_requests`, and the tokens of a generation. */
interface CacheShape {
  readonly depth: number;
  readonly responses: number;
  readonly tokens: number;
}

/** Small caches, which forget. */
export const randomCacheShape = (prng: Prng): CacheShape => ({
  depth: prng.pick([2, 5, 24]),
  responses: prng.pick([1, 3, 1000]),
  tokens: 300,
});

/**
 * Suffix decoding that verifies every draft it finds, also if that takes more time than it saves. Most drafts are wrong. Each must continue a
 * place of the request's own text, or of an output that ended before and has the same cache salt.
 */
export class SuffixDrafts implements Speculator {
  readonly #prng: Prng;
  readonly #options: SuffixOptions;
  readonly #responses: ResponseCache;
  readonly #finders = new WeakMap<RequestState, SuffixFinder>();
  readonly #ended = new Set<RequestState>();
  readonly #outputs = new Map<string | undefined, Int32Array[]>();
  /** Drafts from outputs of earlier requests. */
  fromResponses = 0;

  constructor(prng: Prng, { depth, responses, tokens }: CacheShape) {
    this.#prng = prng;
    this.#options = {
      method: 'suffix',
      numSpeculativeTokens: 12,
      suffixDecodingMaxTreeDepth: depth,
      suffixDecodingMaxCachedRequests: responses,
      suffixDecodingMaxSpecFactor: prng.pick([1, 4]),
      suffixDecodingMinTokenProb: 0,
    };
    this.#responses = new ResponseCache(depth, responses, tokens);
  }

  draft(decodes: readonly RequestState[]): (Int32Array | undefined)[] {
    return decodes.map((state) => {
      if (this.#prng.chance(0.2)) return undefined;
      const continuation = this.#finderOf(state).find();
      if (continuation !== undefined) this.#check(state, continuation);
      return continuation?.tokens;
    });
  }

  verified(): void {}

  observe(): void {}

  ended(state: RequestState): void {
    assert(!this.#ended.has(state), `request ${state.request.id} has ended twice`);
    this.#ended.add(state);
    const { cacheSalt } = state.request;
    const output = state.tokens.view(state.request.promptTokens.length);
    this.#outputs.set(cacheSalt, [...(this.#outputs.get(cacheSalt) ?? []), output.slice()]);
    this.#responses.add(cacheSalt, output);
    this.#responses.checkInvariants();
  }

  #finderOf(state: RequestState): SuffixFinder {
    let finder = this.#finders.get(state);
    if (finder === undefined) {
      finder = new SuffixFinder(state.tokens, this.#options, state.request.cacheSalt, this.#responses);
      this.#finders.set(state, finder);
    }
    return finder;
  }

  #check({ request, tokens }: RequestState, { length, tokens: drafts }: Continuation): void {
    const text = tokens.view();
    const string = [...text.subarray(text.length - length), ...drafts];
    if (occurs([...text, ...drafts], string, text.length - length)) return;
    this.fromResponses++;
    const outputs = this.#outputs.get(request.cacheSalt) ?? [];
    assert(
      outputs.some((output) => occurs(output, string, output.length)),
      `request ${request.id} has drafts from a text that it may not know`,
    );
  }
}

/** Whether the text has the string at a place below `end`. */
function occurs(text: ArrayLike<number>, string: readonly number[], end: number): boolean {
  for (let at = 0; at < Math.min(end, text.length - string.length + 1); at++)
    if (string.every((token, i) => text[at + i] === token)) return true;
  return false;
}
