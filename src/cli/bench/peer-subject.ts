import type { LlamaReference } from '../../ggml/llama-reference.ts';
import { contextTokens, RandomTokens } from './random-tokens.ts';
import type { Rate, Subject } from './subject.ts';

/** libllama as its own bench drives it: nothing but `llama_decode`, no sampling, no scheduling. */
export class PeerSubject implements Subject {
  readonly name = 'libllama';
  readonly #reference: LlamaReference;
  readonly #random: RandomTokens;
  #depth = 0;

  constructor(reference: LlamaReference) {
    this.#reference = reference;
    this.#random = new RandomTokens(Date.now(), reference.vocabSize);
  }

  /** Contexts are beginnings of each other: of a deeper one, what the last one lacks is computed. */
  async prepare(depth: number): Promise<void> {
    const known = Math.min(depth, this.#depth);
    this.#reference.removeFrom(known);
    const missing = contextTokens(depth, this.#reference.vocabSize).subarray(known);
    if (missing.length > 0) this.#reference.decode(missing, { position: known });
    this.#depth = depth;
  }

  async prefill(depth: number, length: number): Promise<Rate> {
    this.#reference.removeFrom(depth);
    const tokens = this.#random.take(length);
    const started = performance.now();
    this.#reference.decode(tokens, { position: depth });
    return { tokens: length, seconds: (performance.now() - started) / 1000 };
  }

  async decode(depth: number, length: number): Promise<Rate> {
    this.#reference.removeFrom(depth);
    const tokens = this.#random.take(length);
    const started = performance.now();
    for (const [i, token] of tokens.entries()) this.#reference.decode([token], { position: depth + i });
    return { tokens: length, seconds: (performance.now() - started) / 1000 };
  }
}
