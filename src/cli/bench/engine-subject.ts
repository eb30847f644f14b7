import { assertDefined } from '../../base/assert.ts';
import type { AsyncEngine, GenerateRequest, OutputDelta } from '../../engine/contract.ts';
import type { EngineOptions } from '../../engine/options.ts';
import { contextNotCached, interrupted } from './errors.ts';
import { contextTokens, RandomTokens } from './random-tokens.ts';
import type { Rate, Subject } from './subject.ts';

/** An engine, and what its runner knows of its own time. */
export interface MeasuredEngine {
  readonly engine: AsyncEngine;
  /** Steps so far, and the milliseconds of them that ggml computed. */
  timings(): { readonly steps: number; readonly computeMs: number };
}

export type OpenMeasuredEngine = (options: EngineOptions) => Promise<MeasuredEngine>;

/** Kvasir as its users have it: requests through the engine, the scheduler and the sampler. The context is a cached prefix. */
export class EngineSubject implements Subject {
  readonly name = 'kvasir';
  readonly #measured: MeasuredEngine;
  readonly #signal: AbortSignal;
  readonly #blockSize: number;
  readonly #random: RandomTokens;

  constructor(measured: MeasuredEngine, blockSize: number, signal: AbortSignal) {
    this.#measured = measured;
    this.#blockSize = blockSize;
    this.#signal = signal;
    this.#random = new RandomTokens(Date.now(), measured.engine.model.vocabSize);
  }

  async prepare(depth: number): Promise<void> {
    if (depth > 0) await this.#generate(this.#context(depth), 1);
  }

  async prefill(depth: number, length: number): Promise<Rate> {
    const prompt = new Int32Array([...this.#context(depth), ...this.#random.take(length)]);
    const { started, ended, last } = await this.#generate(prompt, 1);
    // The last block of the context may be shared with new tokens, so it may be computed again.
    if (last.stats.cachedTokens < depth - this.#blockSize) throw contextNotCached({ depth });
    return { tokens: prompt.length - last.stats.cachedTokens, seconds: (ended - started) / 1000 };
  }

  async decode(depth: number, length: number): Promise<Rate> {
    const prompt = depth > 0 ? this.#context(depth) : this.#random.take(1);
    const { first, ended, last } = await this.#generate(prompt, length + 1);
    const { steps, computeMs } = this.#measured.timings();
    const wallMs = ended - first.at;
    return {
      tokens: last.stats.outputTokens - first.tokens,
      seconds: wallMs / 1000,
      overheadSeconds:
        Math.max(0, wallMs - (computeMs - first.timings.computeMs)) / 1000 / (steps - first.timings.steps),
    };
  }

  #context(depth: number): Int32Array {
    return contextTokens(depth, this.#measured.engine.model.vocabSize);
  }

  /** Runs one request to its end and notes when its first token came. */
  async #generate(prompt: Int32Array, maxTokens: number) {
    const request: GenerateRequest = { prompt, params: { maxTokens, temperature: 0, ignoreEos: true } };
    const started = performance.now();
    let first:
      | { readonly at: number; readonly tokens: number; readonly timings: { steps: number; computeMs: number } }
      | undefined;
    let last: OutputDelta | undefined;
    for await (const delta of this.#measured.engine.generate(request, { signal: this.#signal })) {
      first ??= { at: performance.now(), tokens: delta.stats.outputTokens, timings: { ...this.#measured.timings() } };
      last = delta;
    }
    if (this.#signal.aborted) throw interrupted();
    const ended = performance.now();
    return {
      started,
      ended,
      first: assertDefined(first, 'a request has a first token'),
      last: assertDefined(last, 'a request has an end'),
    };
  }
}
