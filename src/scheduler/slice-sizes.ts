import { keptGraphsMax } from '../core/kept-graphs.ts';
import { StepCost } from './step-cost.ts';
import { PROMPT_SHAPE, promptFeatures, type StepLoad, withPrompt } from './step-load.ts';

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

/** What `Pace` knows of steps. */
export interface KnownCosts {
  /** Milliseconds that a step may take. */
  readonly limitMs: number;
  /** The cost of steps with all layers. */
  readonly withPrompts: StepCost;
}

/**
 * Chooses the size of chunks by layers (ADR 27), and learns the cost of their steps.
 *
 * All steps of a chunk are about equally long. There are at most `SLICES_MAX`, and the next chunk has the same size and layers
 * unless others are better, because the runner keeps the graphs of the last steps.
 */
export class SliceSizes {
  readonly #cost = new StepCost(PROMPT_SHAPE);
  /** After so many steps without a slice, the next step has one, so that its cost is measured again. */
  readonly #stepsWithoutMax: number;
  #stepsWithout = 0;
  /** The last chunk before the end of a prompt. */
  #last: Slice | undefined;

  constructor(stepsWithoutMax: number) {
    this.#stepsWithoutMax = stepsWithoutMax;
  }

  /**
   * The size of a chunk by layers that begins in this step, and how many layers a step computes. Undefined: the step has more of
   * the prompt if it computes all layers of `paced` tokens.
   */
  choose(load: StepLoad, options: SliceOptions, { limitMs, withPrompts }: KnownCosts): Slice | undefined {
    if (options.layerCount < 2) return undefined;
    const isKnown = this.#cost.observations > 0;
    const cost = isKnown ? this.#cost : withPrompts;
    const steps = new SliceSteps(cost, load, options);
    const sizeMax = isKnown ? Math.max(2 * (this.#last?.tokens ?? 0), FIRST_TOKENS) : FIRST_TOKENS;
    let best = steps.best(sizesUpTo(sizeMax, options.tokensMax), limitMs);
    if (best === undefined) return undefined;
    const last = this.#last;
    if (last !== undefined && withoutRest(last.tokens, options.tokensMax) === last.tokens) {
      const isAsGood = steps.rate(last) > SIMILAR * steps.rate(best) && steps.ms(last) < limitMs;
      if (isAsGood) best = last;
    }
    // At the average speed of the machine, because both were measured at different times.
    const wholeMs = withPrompts.average(promptFeatures(withPrompt(load, options.start, options.paced))) * cost.slowdown;
    const isBetter =
      steps.rate(best) > options.paced / wholeMs && SIMILAR * steps.ms(best) < Math.max(limitMs, wholeMs);
    // A few tokens would not show what chunks cost.
    const isToMeasure = best.tokens >= ROWS_MIN && (!isKnown || this.#stepsWithout >= this.#stepsWithoutMax);
    if (!isBetter && !isToMeasure) return undefined;
    // The size of the last chunk of a prompt is not that of others.
    if (best.tokens < options.tokensMax) this.#last = best;
    return best;
  }

  /** A step with streams had these prompt tokens. */
  hadPrompt({ layerShare }: StepLoad): void {
    this.#stepsWithout = layerShare < 1 ? 0 : this.#stepsWithout + 1;
  }

  /** Learns from a step with a slice. */
  observe(load: StepLoad, ms: number): void {
    this.#cost.observe(promptFeatures(load), ms);
  }

  get hasPendingOutlier(): boolean {
    return this.#cost.hasPendingOutlier;
  }

  checkInvariants(): void {
    this.#cost.checkInvariants();
  }
}

/** The predicted steps of a chunk by layers that begins at a certain position. */
class SliceSteps {
  readonly #cost: StepCost;
  readonly #start: number;
  readonly #layerCount: number;
  /** Milliseconds of a step without its slice. */
  readonly #baseMs: number;

  constructor(cost: StepCost, load: StepLoad, { start, layerCount }: SliceOptions) {
    this.#cost = cost;
    this.#start = start;
    this.#layerCount = layerCount;
    this.#baseMs = cost.predict(promptFeatures(load));
  }

  /** Of the chunks of these sizes whose steps keep the limit, or the first: the one with the highest rate. */
  best(sizes: readonly number[], limitMs: number): Slice | undefined {
    const layersMin = Math.ceil(this.#layerCount / SLICES_MAX);
    let best: Slice | undefined;
    for (const tokens of sizes) {
      const fitting = Math.floor((limitMs - this.#baseMs) / Math.max(this.#layerMs(tokens), Number.EPSILON));
      if (best !== undefined && fitting < layersMin) break;
      const steps = Math.max(Math.ceil(this.#layerCount / Math.max(fitting, layersMin)), 2);
      const slice = { tokens, layers: Math.ceil(this.#layerCount / steps) };
      if (best === undefined || this.rate(slice) > this.rate(best)) best = slice;
    }
    return best;
  }

  /** Milliseconds of a step. */
  ms({ tokens, layers }: Slice): number {
    return this.#baseMs + layers * this.#layerMs(tokens);
  }

  /** Tokens of the prompt per millisecond. */
  rate({ tokens, layers }: Slice): number {
    const steps = Math.ceil(this.#layerCount / layers);
    return tokens / (steps * this.#baseMs + this.#layerCount * this.#layerMs(tokens));
  }

  #layerMs(tokens: number): number {
    const cost = this.#cost;
    const context = ((2 * this.#start + tokens + 1) * tokens) / 2;
    const reach = this.#start + tokens;
    return (cost.weight(1) * tokens + cost.weight(2) * context + cost.weight(3) * reach) / this.#layerCount;
  }
}

/** In ascending order. */
function sizesUpTo(sizeMax: number, tokensMax: number): number[] {
  const sizes: number[] = [];
  for (let tokens = ROWS_MIN; tokens <= sizeMax && sizes.at(-1) !== tokensMax; tokens += ROWS_MIN / 2)
    sizes.push(withoutRest(tokens, tokensMax));
  return sizes;
}

/** A chunk does not leave a rest that is smaller than a chunk: steps with all layers of a few tokens of a long prompt take longest. */
const withoutRest = (tokens: number, tokensMax: number): number => (tokensMax - tokens < ROWS_MIN ? tokensMax : tokens);

/** The smallest chunk by layers unless a prompt ends, from which AMX is faster (ADR 10). Others have 16 tokens more each, the rows that matmul kernels compute together. */
const ROWS_MIN = 32;
/** The largest size of the first chunks, whose costs are not known. */
const FIRST_TOKENS = 64;
/** Steps of one chunk by layers. The runner keeps their graphs, and a few others. */
const SLICES_MAX = keptGraphsMax - 4;
/** Of two rates or durations, the smaller divided by the larger: closer ones count as equal. */
const SIMILAR = 0.95;
