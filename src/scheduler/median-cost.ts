import { StepCost } from './step-cost.ts';

/**
 * Predicts the usual duration of a step: the median of the last steps. `StepCost` predicts the next step from the speed of the
 * last few steps. A limit for many steps must not depend on these: if they happen to be slow just before prompts
 * arrive, the limit would be too high until decodes alone are measured again.
 *
 * The last steps may have had other features. A `StepCost` knows what the difference costs: its prediction is multiplied
 * by the median ratio of measured to predicted duration. Deterministic.
 */
export class MedianCost {
  readonly #cost: StepCost;
  readonly #featureCount: number;
  /** The features of the last steps, one after another; their durations are in `#ms`. */
  readonly #features: Float64Array;
  readonly #ms = new Float64Array(STEPS);
  #next = 0;
  #count = 0;

  constructor(shape: readonly number[]) {
    this.#cost = new StepCost(shape);
    this.#featureCount = shape.length;
    this.#features = new Float64Array(STEPS * shape.length);
  }

  get observations(): number {
    return this.#cost.observations;
  }

  observe(features: readonly number[], ms: number): void {
    this.#cost.observe(features, ms);
    if (!(ms > 0)) return;
    this.#features.set(features, this.#next * this.#featureCount);
    this.#ms[this.#next] = ms;
    this.#next = (this.#next + 1) % STEPS;
    this.#count = Math.min(this.#count + 1, STEPS);
  }

  /** Milliseconds of a step with these features; 0 before the first observation. */
  predict(features: readonly number[]): number {
    if (this.#count === 0) return 0;
    const ratios = this.#ms.slice(0, this.#count);
    for (let i = 0; i < this.#count; i++) {
      const average = this.#cost.average(this.#features, i * this.#featureCount);
      ratios[i] = average > 0 ? ratios[i]! / average : 1;
    }
    // Of two in the middle the smaller one: pauses only make steps longer.
    return this.#cost.average(features) * ratios.sort()[(this.#count - 1) >> 1]!;
  }

  checkInvariants(): void {
    this.#cost.checkInvariants();
  }
}

/** So many that a dozen slow steps in a row hardly change the median. */
const STEPS = 31;
