import { contextTokens, RandomTokens } from '../random-tokens.ts';
import { converseInBatches } from './libllama-conversations.ts';
import type { LlamaReference } from './llama-reference.ts';
import type { RunTimes } from './run-times.ts';
import type { Rate, Subject } from './subject.ts';
import type { Workload } from './workload.ts';

/**
 * libllama as in its own bench: only `llama_decode`, with random tokens instead of sampled ones. Several sequences add
 * one row each to every batch; workloads fill batches as llama.cpp's server does.
 */
export class LibllamaSubject implements Subject {
  readonly name = 'libllama';
  readonly #reference: LlamaReference;
  readonly #batch: number;
  readonly #random: RandomTokens;
  readonly #signal: AbortSignal;
  #depth = 0;
  /** The context, if libllama cannot remove what follows it. */
  #context: Uint8Array | undefined;

  constructor(reference: LlamaReference, batch: number, signal: AbortSignal) {
    this.#signal = signal;
    this.#reference = reference;
    this.#batch = batch;
    this.#random = new RandomTokens(Date.now(), reference.vocabSize);
  }

  /**
   * A longer context starts with the shorter one, so only the missing tokens are computed. Other sequences get copies of
   * the first: libllama stores them separately, so a step reads as much KV as for different contexts.
   */
  async prepare(depth: number): Promise<void> {
    const known = Math.min(depth, this.#depth);
    for (let sequence = 0; sequence < this.#batch; sequence++) {
      this.#rewind(sequence === 0 ? known : 0, sequence);
    }
    const missing = contextTokens(depth, this.#reference.vocabSize, 0).subarray(known);
    if (missing.length > 0) this.#reference.decode(missing, { position: known });
    for (let sequence = 1; sequence < this.#batch && depth > 0; sequence++) this.#reference.copySequence(0, sequence);
    this.#depth = depth;
    this.#context = this.#reference.canRemoveEnd || depth === 0 ? undefined : this.#reference.saveSequence();
  }

  async prefill(depth: number, length: number): Promise<Rate> {
    this.#rewind(depth, 0);
    const tokens = this.#random.take(length);
    const started = performance.now();
    this.#reference.decode(tokens, { position: depth });
    return { tokens: length, seconds: (performance.now() - started) / 1000 };
  }

  async decode(depth: number, length: number): Promise<Rate> {
    const sequences = Array.from({ length: this.#batch }, (_, sequence) => sequence);
    for (const sequence of sequences) this.#rewind(depth, sequence);
    const wanted = sequences.map(() => 1);
    const tokens = Array.from({ length }, () => this.#random.take(this.#batch));
    const started = performance.now();
    for (const [i, row] of tokens.entries()) {
      this.#reference.decodeBatch({
        tokens: row,
        positions: sequences.map(() => depth + i),
        sequences,
        wanted,
      });
    }
    return { tokens: length * this.#batch, seconds: (performance.now() - started) / 1000 };
  }

  run(workload: Workload, times: RunTimes): Promise<number> {
    this.#depth = 0;
    this.#context = undefined;
    return converseInBatches(this.#reference, workload, times, { random: this.#random, signal: this.#signal });
  }

  /** Removes the tokens of a sequence after the first `length`: none or the context. */
  #rewind(length: number, sequence: number): void {
    if (length === 0 || this.#context === undefined) this.#reference.removeFrom(length, sequence);
    else this.#reference.restoreSequence(this.#context, sequence);
  }
}
