import { assert } from '../../base/assert.ts';
import { SuffixTree } from './suffix-tree.ts';

/** Outputs of about the same time. */
export interface ResponseGeneration {
  readonly tree: SuffixTree;
  /** Requests find only outputs of requests with the same cache salt. */
  readonly roots: Map<string | undefined, number>;
  responses: number;
  /** Characters of the salts, which clients choose. They count as tokens. */
  saltCharacters: number;
}

/**
 * Outputs of earlier requests, which later outputs may repeat. It has at most `responsesMax` of them, and at most `tokensMax` tokens in each of two
 * generations.
 *
 * New outputs are written to the younger generation. If it is full, the older one is dropped, and a new one begins. So at
 * least the last `responsesMax / 2` outputs are kept (rounded down), unless they have too many tokens.
 */
export class ResponseCache {
  readonly #depthMax: number;
  readonly #responsesMax: number;
  readonly #tokensMax: number;
  readonly #treeBytes: number;
  #younger: ResponseGeneration;
  #older: ResponseGeneration | undefined;

  /** `tokensMax`: of a generation. */
  constructor(depthMax: number, responsesMax: number, tokensMax: number = GENERATION_TOKENS) {
    assert(responsesMax >= 1 && tokensMax >= 2, `a cache of ${responsesMax} responses with ${tokensMax} tokens`);
    this.#depthMax = depthMax;
    this.#responsesMax = responsesMax;
    this.#tokensMax = tokensMax;
    this.#younger = this.#generation();
    this.#treeBytes = this.#younger.tree.byteLength;
  }

  get younger(): ResponseGeneration {
    return this.#younger;
  }

  get older(): ResponseGeneration | undefined {
    return this.#older;
  }

  /** Bytes of the trees. */
  get byteLength(): number {
    return this.#younger.tree.byteLength + (this.#older?.tree.byteLength ?? 0);
  }

  /** A request has ended. Of long outputs, the last tokens are kept. */
  add(salt: string | undefined, output: Int32Array): void {
    const tokens = output.subarray(-Math.min(RESPONSE_TOKENS_MAX, this.#tokensMax - 1));
    const saltLength = salt?.length ?? 0;
    if (tokens.length < 2 || tokens.length + 1 + saltLength > this.#tokensMax) return;
    const responsesMax = Math.max(Math.floor(this.#responsesMax / 2), 1);
    const { responses, tree, roots, saltCharacters } = this.#younger;
    const more = tokens.length + 1 + (roots.has(salt) ? 0 : saltLength);
    if (responses === responsesMax || tree.length + saltCharacters + more > this.#tokensMax) {
      this.#older = this.#responsesMax === 1 ? undefined : this.#younger;
      this.#younger = this.#generation();
    }
    this.#write(this.#younger, salt, tokens);
  }

  /** Called by tests: O(tokens). */
  checkInvariants(): void {
    const generations = this.#older === undefined ? [this.#younger] : [this.#younger, this.#older];
    let responses = 0;
    for (const generation of generations) {
      generation.tree.checkInvariants();
      responses += generation.responses;
      const { saltCharacters, tree, roots } = generation;
      const characters = [...roots.keys()].reduce((sum, salt = '') => sum + salt.length, 0);
      assert(saltCharacters === characters, `salts of ${characters} characters, not ${saltCharacters}`);
      const size = tree.length + saltCharacters;
      assert(size <= this.#tokensMax, `a generation of size ${size} is larger than ${this.#tokensMax}`);
      assert(tree.byteLength === this.#treeBytes, 'the tree of a generation has grown');
    }
    assert(responses <= this.#responsesMax, `${responses} responses are more than ${this.#responsesMax}`);
  }

  #write(generation: ResponseGeneration, salt: string | undefined, tokens: Int32Array): void {
    const { tree, roots } = generation;
    let root = roots.get(salt);
    if (root === undefined) {
      root = tree.addRoot();
      roots.set(salt, root);
      generation.saltCharacters += salt?.length ?? 0;
    }
    tree.begin(root);
    for (let i = 0; i < tokens.length; i++) tree.append(tokens[i]!);
    tree.end();
    generation.responses++;
  }

  #generation(): ResponseGeneration {
    // The tree never grows: to build its hash table again would take too long for a step.
    return { tree: new SuffixTree(this.#depthMax, this.#tokensMax), roots: new Map(), responses: 0, saltCharacters: 0 };
  }
}

/** The tree of so many tokens takes 36 MB. */
const GENERATION_TOKENS = 2 ** 19 - 1;
/** To write more would delay the next step. */
const RESPONSE_TOKENS_MAX = 4096;
