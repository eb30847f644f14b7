import { assert } from '../base/assert.ts';
import { keptGraphsMax } from '../core/kept-graphs.ts';
import { MedianCost } from './median-cost.ts';
import { StepCost } from './step-cost.ts';

/** The work of a step that decides its duration. */
export interface StepLoad {
  /** Requests that need one scheduled token for their next output token. */
  decodes: number;
  /** Of these, requests whose client has received a token already, and notices the duration of the step. */
  streams: number;
  /** Draft tokens of these requests: one more row each. */
  draftTokens: number;
  /** The sum of the context tokens that the drafts attend to. */
  draftContext: number;
  /** The sum of the context tokens that the decodes attend to. */
  decodeContext: number;
  promptTokens: number;
  /** The sum of the tokens that each prompt token attends to. */
  promptContext: number;
  /** The sum of the contexts of all chunks: a chunk reads the KV of its context once for all of its tokens. */
  promptReach: number;
  /** The share of the layers that are computed for the prompt tokens: 1, or less for a chunk by layers (ADR 27). */
  layerShare: number;
}

export const emptyLoad = (): StepLoad => ({
  decodes: 0,
  streams: 0,
  draftTokens: 0,
  draftContext: 0,
  decodeContext: 0,
  promptTokens: 0,
  promptContext: 0,
  promptReach: 0,
  layerShare: 1,
});

/** Adds the tokens [start, end) of a prompt. */
export function addPrompt(load: StepLoad, start: number, end: number): void {
  load.promptTokens += end - start;
  load.promptContext += ((start + end + 1) * (end - start)) / 2;
  load.promptReach += end;
}

/** The tokens of a chunk by layers, and the number of layers that a step computes. */
export interface Slice {
  readonly tokens: number;
  readonly layers: number;
}

/** What is known of a chunk before its size is chosen. */
export interface SliceOptions {
  readonly start: number;
  readonly tokensMax: number;
  readonly layerCount: number;
  /** How many tokens the step may have instead, with all layers. */
  readonly paced: number;
}

/**
 * Limits the duration of steps with streams by the number of their prompt tokens. `auto`: a step takes at most
 * `AUTO_FACTOR` times as long as its decodes alone usually do. A number: milliseconds.
 *
 * There are models for steps of decodes only, for steps with prompts, and for steps with a chunk by layers. The reason is that memory limits
 * the first, and arithmetic the others, which is faster for many rows than for few. All learn from the measured duration of each step. The limit depends on the median of the last
 * decodes; the duration of a step with prompts is predicted from the present speed.
 *
 * Prompts always progress. A step without prompt tokens comes twice at the start, and then once in
 * `PROMPT_STEPS_MAX + 1` steps, to measure decodes alone. All other steps take at least 4 prompt tokens.
 */
export class Pace {
  readonly #target: number | 'auto';
  readonly #decodesOnly = new MedianCost([12, 1, 1 / 400]);
  readonly #withPrompts = new StepCost(PROMPT_SHAPE);
  readonly #withSlices = new StepCost(PROMPT_SHAPE);
  /** Steps with all layers of prompt tokens since the last slice. */
  #stepsSinceSlice = 0;
  /** Of the last chunk by layers. */
  #slice: Slice | undefined;
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

  /**
   * The size of a chunk by layers that begins in this step, and how many layers a step computes. Undefined: the step has more of
   * the prompt if it computes all layers of `paced` tokens.
   *
   * All steps of a chunk are about equally long. There are at most `SLICES_MAX`, and the next chunk has the same size and layers
   * unless others are better, because the runner keeps the graphs of the last steps.
   */
  sliceOf(load: StepLoad, { start, tokensMax, layerCount, paced }: SliceOptions): Slice | undefined {
    const limitMs = this.#limitMs(load);
    if (limitMs === undefined || this.#withPrompts.observations === 0 || layerCount < 2) return undefined;
    const isKnown = this.#withSlices.observations > 0;
    const cost = isKnown ? this.#withSlices : this.#withPrompts;
    const baseMs = cost.predict(promptFeatures(load));
    const layerMs = (tokens: number): number => {
      const context = ((2 * start + tokens + 1) * tokens) / 2;
      return (cost.weight(1) * tokens + cost.weight(2) * context + cost.weight(3) * (start + tokens)) / layerCount;
    };
    /** Tokens per millisecond. */
    const rate = ({ tokens, layers }: Slice): number =>
      tokens / (Math.ceil(layerCount / layers) * baseMs + layerCount * layerMs(tokens));
    let best: Slice | undefined;
    const sizeMax = Math.min(tokensMax, isKnown ? 2 * (this.#slice?.tokens ?? 0) : FIRST_SLICED_TOKENS);
    for (let tokens = ROWS_OF_SLICE; tokens <= sizeMax; tokens += ROWS_OF_SLICE / 2) {
      const fitting = Math.floor((limitMs - baseMs) / Math.max(layerMs(tokens), Number.EPSILON));
      const layersMin = Math.ceil(layerCount / SLICES_MAX);
      if (best !== undefined && fitting < layersMin) break;
      const steps = Math.max(Math.ceil(layerCount / Math.max(fitting, layersMin)), 2);
      const slice = { tokens, layers: Math.ceil(layerCount / steps) };
      if (best === undefined || rate(slice) > rate(best)) best = slice;
    }
    if (best === undefined) return undefined;
    const last = this.#slice;
    const stepMs = ({ tokens, layers }: Slice): number => baseMs + layers * layerMs(tokens);
    const isAsGood = (slice: Slice): boolean =>
      rate(slice) > SIMILAR * rate(best!) && SIMILAR * stepMs(slice) < limitMs;
    if (last !== undefined && last.tokens <= tokensMax && isAsGood(last)) best = last;
    // At the average speed of the machine, because both were measured at different times.
    const wholeMs = this.#withPrompts.average(promptFeatures(withPrompt(load, start, paced)));
    const isBetter =
      rate(best) * cost.slowdown > paced / wholeMs &&
      SIMILAR * stepMs(best) < Math.max(limitMs, wholeMs * cost.slowdown);
    if (isKnown && !isBetter && this.#stepsSinceSlice < PROMPT_STEPS_MAX) return undefined;
    this.#slice = best;
    return best;
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
      this.#stepsSinceSlice = load.layerShare < 1 ? 0 : this.#stepsSinceSlice + 1;
    }
    if (ms === undefined || load.decodes + load.promptTokens === 0) return;
    if (isDecodesOnly) this.#decodesOnly.observe(decodeFeatures(load), ms);
    else if (load.layerShare < 1) this.#withSlices.observe(promptFeatures(load), ms);
    else this.#withPrompts.observe(promptFeatures(load), ms);
    if (this.#withPrompts.hasPendingOutlier || this.#withSlices.hasPendingOutlier)
      this.#lastChunk = Math.ceil(this.#lastChunk / 2);
  }

  checkInvariants(): void {
    this.#decodesOnly.checkInvariants();
    this.#withPrompts.checkInvariants();
    this.#withSlices.checkInvariants();
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

/** The features of a step with prompt tokens; their relative costs on a typical machine are `PROMPT_SHAPE`. */
export const promptFeatures = ({
  decodes,
  decodeContext,
  promptTokens,
  promptContext,
  promptReach,
  layerShare,
}: StepLoad): number[] => [
  1,
  decodes + promptTokens * layerShare,
  promptContext * layerShare,
  promptReach * layerShare,
  decodeContext,
];

function withPrompt(load: StepLoad, start: number, tokens: number): StepLoad {
  const sum = { ...load };
  addPrompt(sum, start, start + tokens);
  return sum;
}

/** 4 to 11 tokens, so that the step has a multiple of `ROWS_TOGETHER`. */
function promptTokensMin(tokens: number): number {
  const missing = ROWS_TOGETHER - (tokens % ROWS_TOGETHER);
  return missing < ROWS_TOGETHER / 2 ? missing + ROWS_TOGETHER : missing;
}

/** The smallest chunk by layers, from which AMX is faster (ADR 10). Others have 16 tokens more each, the rows that matmul kernels compute together. */
const ROWS_OF_SLICE = 32;
/** The size of the first chunk by layers, whose costs are not known. */
const FIRST_SLICED_TOKENS = 64;
/** Steps of one chunk by layers. The runner keeps their graphs, and a few others. */
const SLICES_MAX = keptGraphsMax - 4;
/** Of two rates or durations, the smaller divided by the larger: closer ones count as equal. */
const SIMILAR = 0.95;

export const PROMPT_SHAPE = [4, 1, 1 / 1500, 1 / 100, 1 / 400];

/** A step with prompt tokens takes at most about this many times as long as its decodes alone. */
export const AUTO_FACTOR = 3.2;
/** Matmul kernels compute 16 or 8 rows at a time (ADR 10). Further rows need another pass over the weights. */
const ROWS_TOGETHER = 8;
/** A step near its limit has a multiple of this many rows. With multiples of 8, steps are further below the limit (ADR 12). */
const ROWS_MULTIPLE = 4;
/** The largest number of consecutive steps with prompt tokens. Then a step without them measures decodes again. */
export const PROMPT_STEPS_MAX = 64;
const FIRST_MEASUREMENTS = 2;
