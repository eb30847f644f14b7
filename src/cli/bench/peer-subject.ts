import type { LlamaReference } from '../../ggml/llama-reference.ts';
import { contextTokens, RandomTokens } from './random-tokens.ts';
import type { Rate, Subject } from './subject.ts';

/** libllama as its own bench drives it: nothing but `llama_decode`, no sampling, no scheduling. */
export class PeerSubject implements Subject {
  readonly name = 'libllama';
  readonly #reference: LlamaReference;
  readonly #random: RandomTokens;

  constructor(reference: LlamaReference) {
    this.#reference = reference;
    this.#random = new RandomTokens(Date.now(), reference.vocabSize);
  }

  async prepare(depth: number): Promise<void> {
    this.#reference.clear();
    if (depth > 0) this.#reference.decode(contextTokens(depth, this.#reference.vocabSize));
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
