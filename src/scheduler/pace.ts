import { assert } from '../base/assert.ts';
import { MedianCost } from './median-cost.ts';
import { type Slice, type SliceOptions, SliceSizes } from './slice-sizes.ts';
import { StepCost } from './step-cost.ts';
import { PROMPT_SHAPE, promptFeatures, type StepLoad } from './step-load.ts';

/**
 * Limits the duration of steps with streams by the number of their prompt tokens. `auto`: a step takes at most
 * `AUTO_FACTOR` times as long as its decodes alone usually do. A number: milliseconds.
 *
 * There are models for steps of decodes only, for steps with prompts, and for steps with a chunk by layers (`SliceSizes`). The reason is
 * that memory limits the first, and arithmetic the others, which is faster for many rows than for few. All learn from the measured
 * duration of each step. The limit depends on the median of the last decodes; the duration of a step with prompts is predicted
 * from the present speed.
 *
 * Prompts always progress. A step without prompt tokens comes twice at the start, and then once in
 * `PROMPT_STEPS_MAX + 1` steps, to measure decodes alone. All other steps take at least 4 prompt tokens.
 */
export class Pace {
  readonly #target: number | 'auto';
  readonly #decodesOnly = new MedianCost([12, 1, 1 / 400]);
  readonly #withPrompts = new StepCost(PROMPT_SHAPE);
  readonly #sliceSizes = new SliceSizes(PROMPT_STEPS_MAX);
  /** Steps with streams since the last step of decodes only. */
  #promptSteps = 0;
  /** Prompt tokens of the last steps with streams, from which chunks grow. */
  #lastChunk = 0;
  /** Steps without prompt tokens that were planned to measure decodes. */
  #attempts = 0;

  constructor(target: number | 'auto') {
    assert(target === 'auto' || target > 0, 'a target is a positive number of milliseconds');
    this.#target = target;
  }

  /** How many tokens of a prompt from position `start` on the step may have in addition to its load. */
  promptTokensAllowed(load: StepLoad, start: number): number {
    if (load.streams === 0) return Infinity;
    if (this.#isToMeasure()) return 0;
    const tokens = load.decodes + load.promptTokens;
    const least = load.promptTokens > 0 ? 0 : promptTokensMin(tokens);
    const limitMs = this.#limitMs(load);
    if (limitMs === undefined || this.#withPrompts.observations === 0) return least;
    const leftMs = limitMs - this.#withPrompts.predict(promptFeatures(load));
    const fitting = Math.floor((tokens + this.#promptTokensIn(leftMs, start)) / ROWS_MULTIPLE) * ROWS_MULTIPLE - tokens;
    return Math.max(Math.min(fitting, this.#chunkMax(tokens) - load.promptTokens), least);
  }

  /** The size of a chunk by layers that begins in this step; undefined: the step computes all layers of `paced` tokens. */
  sliceOf(load: StepLoad, options: SliceOptions): Slice | undefined {
    const limitMs = this.#limitMs(load);
    if (limitMs === undefined || this.#withPrompts.observations === 0) return undefined;
    return this.#sliceSizes.choose(load, options, { limitMs, withPrompts: this.#withPrompts });
  }

  /** Learns from a step. `ms` is undefined if the duration is not only computing: the step waited for a load. */
  observe(load: StepLoad, ms: number | undefined): void {
    const isDecodesOnly = load.promptTokens === 0;
    if (isDecodesOnly) {
      if (this.#isToMeasure()) this.#attempts++;
      this.#promptSteps = 0;
    } else if (load.streams > 0) {
      this.#promptSteps++;
      this.#lastChunk = Math.max(Math.ceil(load.promptTokens * load.layerShare), Math.ceil(this.#lastChunk / 2));
      this.#sliceSizes.hadPrompt(load);
    }
    if (ms === undefined || load.decodes + load.promptTokens === 0) return;
    if (isDecodesOnly) this.#decodesOnly.observe(decodeFeatures(load), ms);
    else if (load.layerShare < 1) this.#sliceSizes.observe(load, ms);
    else this.#withPrompts.observe(promptFeatures(load), ms);
    if (this.#withPrompts.hasPendingOutlier || this.#sliceSizes.hasPendingOutlier)
      this.#lastChunk = Math.ceil(this.#lastChunk / 2);
  }

  checkInvariants(): void {
    this.#decodesOnly.checkInvariants();
    this.#withPrompts.checkInvariants();
    this.#sliceSizes.checkInvariants();
    assert(this.#promptSteps <= PROMPT_STEPS_MAX || this.#target !== 'auto', 'decodes alone were not measured in time');
  }

  /** Milliseconds that a step with this load may take; undefined until decodes alone are measured. */
  #limitMs(load: StepLoad): number | undefined {
    if (this.#target !== 'auto') return this.#target;
    if (this.#decodesOnly.observations === 0) return undefined;
    return AUTO_FACTOR * this.#decodesOnly.predict(decodeFeatures(load));
  }

  /** Chunks grow gradually, because predictions for much larger chunks are less accurate. */
  #chunkMax(tokens: number): number {
    return Math.floor((1.25 * this.#lastChunk) / ROWS_TOGETHER + 2) * ROWS_TOGETHER - (tokens % ROWS_TOGETHER);
  }

  #isToMeasure(): boolean {
    if (this.#target !== 'auto') return false;
    if (this.#promptSteps >= PROMPT_STEPS_MAX) return true;
    return this.#decodesOnly.observations < FIRST_MEASUREMENTS && this.#attempts < FIRST_MEASUREMENTS;
  }

  /** The largest n with `b n + c (start + 1 + ... + start + n) + d (start + n) <= ms`. */
  #promptTokensIn(ms: number, start: number): number {
    const perReach = this.#withPrompts.weight(3);
    const leftMs = ms - perReach * start;
    if (leftMs <= 0) return 0;
    const perContext = this.#withPrompts.weight(2);
    const perToken = this.#withPrompts.weight(1) + perContext * (start + 0.5) + perReach;
    const slope = perToken + Math.sqrt(perToken ** 2 + 2 * perContext * leftMs);
    return slope === 0 ? Infinity : (2 * leftMs) / slope;
  }
}

const decodeFeatures = ({ decodes, draftTokens, decodeContext }: StepLoad): number[] => [
  1,
  decodes + draftTokens,
  decodeContext,
];

/** 4 to 11 tokens, so that the step has a multiple of `ROWS_TOGETHER`. */
function promptTokensMin(tokens: number): number {
  const missing = ROWS_TOGETHER - (tokens % ROWS_TOGETHER);
  return missing < ROWS_TOGETHER / 2 ? missing + ROWS_TOGETHER : missing;
}

/** A step with prompt tokens takes at most about this many times as long as its decodes alone. */
export const AUTO_FACTOR = 3.2;
/** Matmul kernels compute 16 or 8 rows at a time (ADR 10). Further rows need another pass over the weights. */
const ROWS_TOGETHER = 8;
/** A step near its limit has a multiple of this many rows. With multiples of 8, steps are further below the limit (ADR 12). */
const ROWS_MULTIPLE = 4;
/** The largest number of consecutive steps with prompt tokens. Then a step without them measures decodes again. */
export const PROMPT_STEPS_MAX = 64;
const FIRST_MEASUREMENTS = 2;
