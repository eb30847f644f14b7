import { assertDefined } from '../../src/base/assert.ts';
import type { AsyncEngine, GenerateRequest, OutputDelta } from '../../src/engine/contract.ts';
import type { EngineOptions } from '../../src/engine/options.ts';
import { contextNotCached, interrupted } from '../errors.ts';
import { contextTokens, RandomTokens } from '../random-tokens.ts';
import { converse } from './conversations.ts';
import { DecodeWindow } from './decode-window.ts';
import type { RunTimes } from './run-times.ts';
import type { Rate, StepOverhead, Subject } from './subject.ts';
import { threadCpuMs } from './thread-cpu.ts';
import type { Workload } from './workload.ts';

/** An engine with the timings of its runner. */
export interface MeasuredEngine {
  readonly engine: AsyncEngine;
  timings(): StepTimings;
  /** Tokens of the largest block. A cached prefix ends at a multiple of them. */
  readonly blockTokens: number;
}

/** The number of steps so far, and the milliseconds of preparing batches, of computing with ggml, and of sampling. */
export interface StepTimings {
  readonly steps: number;
  readonly prepareMs: number;
  readonly computeMs: number;
  readonly sampleMs: number;
}

export type OpenMeasuredEngine = (options: EngineOptions) => Promise<MeasuredEngine>;

/**
 * Kvasir with all its parts: requests go through the engine, the scheduler and the sampler, and their text is read.
 * Contexts are cached prefixes; each sequence has its own.
 */
export class EngineSubject implements Subject {
  readonly name = 'kvasir';
  readonly #measured: MeasuredEngine;
  readonly #signal: AbortSignal;
  readonly #batch: number;
  readonly #random: RandomTokens;

  /** `batch`: the number of requests that decode at once. */
  constructor(measured: MeasuredEngine, batch: number, signal: AbortSignal) {
    this.#measured = measured;
    this.#batch = batch;
    this.#signal = signal;
    this.#random = new RandomTokens(Date.now(), measured.engine.model.vocabSize);
  }

  async prepare(depth: number): Promise<void> {
    if (depth > 0) await this.#generateAll(this.#contexts(depth), 1);
  }

  async prefill(depth: number, length: number): Promise<Rate> {
    const prompt = new Int32Array([...this.#context(depth, 0), ...this.#random.take(length)]);
    const startedMs = performance.now();
    const { stats } = await this.#generate(prompt, 1);
    this.#checkCached(stats.cachedTokens, depth);
    return { tokens: prompt.length - stats.cachedTokens, seconds: (performance.now() - startedMs) / 1000 };
  }

  async decode(depth: number, length: number): Promise<Rate> {
    const prompts = depth > 0 ? this.#contexts(depth) : Array.from({ length: this.#batch }, () => this.#random.take(1));
    // The first token belongs to the prompt, and the last is delivered when no step computes any more.
    const tokensEach = length + 2;
    let reading = this.#read();
    // Tokens of one step are delivered together, so the clocks are read once for all of them.
    const read = (): EngineReading => {
      if (this.#measured.timings().steps !== reading.steps) reading = this.#read();
      return reading;
    };
    const window = new DecodeWindow(this.#batch, tokensEach, read);
    const ends = await this.#generateAll(prompts, tokensEach, window);
    for (const { stats } of ends) this.#checkCached(stats.cachedTokens, depth);
    const { from, to, tokens } = window.result();
    return { tokens, seconds: (to.atMs - from.atMs) / 1000, overhead: overheadBetween(from, to) };
  }

  /** The earlier turns of a conversation are cached prefixes. */
  run(workload: Workload, times: RunTimes): Promise<number> {
    return converse(workload, (prompt, maxTokens) => this.#tokens(prompt, maxTokens), times);
  }

  #read(): EngineReading {
    return { ...this.#measured.timings(), atMs: performance.now(), cpuMs: threadCpuMs() };
  }

  #context(depth: number, sequence: number): Int32Array {
    return contextTokens(depth, this.#measured.engine.model.vocabSize, sequence);
  }

  #contexts(depth: number): Int32Array[] {
    return Array.from({ length: this.#batch }, (_, sequence) => this.#context(depth, sequence));
  }

  /** The last block of the context may have new tokens too, so it may be computed again. */
  #checkCached(cachedTokens: number, depth: number): void {
    if (cachedTokens < depth - this.#measured.blockTokens) throw contextNotCached({ depth });
  }

  #generateAll(
    prompts: readonly Int32Array[],
    maxTokens: number,
    window?: DecodeWindow<EngineReading>,
  ): Promise<OutputDelta[]> {
    const count = (sequence: number) => (delta: OutputDelta) => window?.add(sequence, delta.tokenIds.length);
    return Promise.all(prompts.map((prompt, sequence) => this.#generate(prompt, maxTokens, count(sequence))));
  }

  /** Runs one request to its end. */
  async #generate(prompt: Int32Array, maxTokens: number, onDelta?: (delta: OutputDelta) => void): Promise<OutputDelta> {
    let last: OutputDelta | undefined;
    for await (const delta of this.#deltas(prompt, maxTokens)) {
      onDelta?.(delta);
      last = delta;
    }
    if (this.#signal.aborted) throw interrupted();
    return assertDefined(last, 'a request has an end');
  }

  async *#tokens(prompt: Int32Array, maxTokens: number): AsyncGenerator<ArrayLike<number>> {
    for await (const { tokenIds } of this.#deltas(prompt, maxTokens)) {
      if (this.#signal.aborted) throw interrupted();
      yield tokenIds;
    }
    if (this.#signal.aborted) throw interrupted();
  }

  #deltas(prompt: Int32Array, maxTokens: number): AsyncIterable<OutputDelta> {
    const request: GenerateRequest = { prompt, params: { maxTokens, temperature: 0, ignoreEos: true } };
    return this.#measured.engine.generate(request, { signal: this.#signal });
  }
}

/** The clocks at the time when tokens are delivered. */
export interface EngineReading extends StepTimings {
  readonly atMs: number;
  readonly cpuMs: number | undefined;
}

/**
 * Tokens are delivered while the next step computes. The compute timer excludes the step in progress, at the start and
 * at the end of the window, so the window has whole steps.
 */
export function overheadBetween(from: EngineReading, to: EngineReading): StepOverhead {
  const steps = Math.max(1, to.steps - from.steps);
  const wallMs = to.atMs - from.atMs;
  const outsideMs = Math.max(0, wallMs - (to.computeMs - from.computeMs));
  const cpuMs = from.cpuMs === undefined || to.cpuMs === undefined ? undefined : to.cpuMs - from.cpuMs;
  return {
    stepMs: wallMs / steps,
    outsideMs: outsideMs / steps,
    prepareMs: (to.prepareMs - from.prepareMs) / steps,
    sampleMs: (to.sampleMs - from.sampleMs) / steps,
    ...(cpuMs === undefined ? {} : { besideMs: Math.max(0, cpuMs - outsideMs) / steps }),
  };
}
