import { assert } from '../base/assert.ts';

/**
 * Predicts the duration of steps from measured steps. The prediction is a linear function of a few features with
 * non-negative weights, divided by the present speed of the machine. Deterministic, and O(features²) per step.
 *
 * The weights change slowly, by recursive least squares of the relative error. So a step of 10 ms counts as much as a
 * step of 1 s. Forgetting is directional (Kulhavý 1987): a step replaces only knowledge about similar steps. After a
 * hundred equal steps the model still knows the costs of other steps. The speed follows the last few steps.
 *
 * A pause of the process can only make a step longer. So a step of more than twice the predicted duration counts only
 * if the next step is also too long. Then the machine has become slower. If the first step had a pause, the next step is
 * much shorter than predicted, even after the model has learned from it. Then the model starts again with that step.
 */
export class StepCost {
  /** Milliseconds per unit of each feature; zeros until the first observation. */
  readonly #weights: Float64Array;
  /** Covariance of the weights in units of the noise, row by row. */
  readonly #covariance: Float64Array;
  readonly #gain: Float64Array;
  readonly #shape: readonly number[];
  /** The ratio of measured to predicted duration in the last steps. */
  #slowdown = 1;
  #observations = 0;
  /** This ratio for the last step, if that step was too long to count at once. */
  #pendingOutlier: number | undefined;

  /** `shape`: the relative costs of the features on a typical machine. The first observation scales them. */
  constructor(shape: readonly number[]) {
    assert(shape.length > 0 && shape.every((weight) => weight > 0), 'a typical machine has positive costs');
    this.#shape = shape;
    this.#weights = new Float64Array(shape.length);
    this.#covariance = new Float64Array(shape.length ** 2);
    this.#gain = new Float64Array(shape.length);
  }

  /** Steps from which the model has learned. */
  get observations(): number {
    return this.#observations;
  }

  /** The ratio of measured to predicted duration in the last steps: the present speed of the machine. */
  get slowdown(): number {
    return this.#slowdown;
  }

  /** The last step took more than twice the predicted duration, and does not count yet. */
  get hasPendingOutlier(): boolean {
    return this.#pendingOutlier !== undefined;
  }

  /** Milliseconds per unit of the feature, at the present speed. */
  weight(feature: number): number {
    return this.#slowdown * this.#weights[feature]!;
  }

  /** Milliseconds of a step with these features; 0 before the first observation. */
  predict(features: readonly number[]): number {
    return this.#slowdown * this.average(features);
  }

  /** As `predict`, but at the average speed of some thirty similar steps. The features begin at `from`. */
  average(features: ArrayLike<number>, from = 0): number {
    let sum = 0;
    for (let i = 0; i < this.#weights.length; i++) sum += this.#weights[i]! * features[from + i]!;
    return sum;
  }

  observe(features: readonly number[], ms: number): void {
    assert(features.length === this.#shape.length, `${features.length} features, ${this.#shape.length} weights`);
    // The clock did not advance, so the step has no measured duration.
    if (!(ms > 0)) return;
    if (this.average(features) <= 0) this.#begin(features, ms);
    else if (!this.#accepts(features, ms)) return;
    this.#observations++;
    this.#learn(features, ms);
    // With durations of very different magnitudes, rounding errors may become as large as the weights.
    if (!this.#isFinite() || this.predict(features) > OUTLIER_RATIO * ms) this.#begin(features, ms);
    const ratio = ms / this.predict(features);
    this.#slowdown *= Math.min(Math.max(ratio, 1 / OUTLIER_RATIO), OUTLIER_RATIO) ** SPEED_GAIN;
  }

  checkInvariants(): void {
    if (!isPositive(this.#slowdown)) fail(`the slowdown is ${this.#slowdown}`);
    const count = this.#weights.length;
    for (let i = 0; i < count; i++) {
      const weight = this.#weights[i]!;
      if (!(weight === 0 || isPositive(weight))) fail(`the weight of feature ${i} is ${weight}`);
      const variance = this.#covariance[i * count + i]!;
      if (!(variance === 0 || isPositive(variance))) fail(`the variance of feature ${i} is ${variance}`);
      for (let j = 0; j < i; j++)
        if (this.#covariance[i * count + j] !== this.#covariance[j * count + i])
          fail(`the covariance of features ${i} and ${j} is not symmetric`);
    }
  }

  /** Sets all weights from one step, with the typical relative costs. */
  #begin(features: readonly number[], ms: number): void {
    const count = this.#weights.length;
    this.#slowdown = 1;
    this.#covariance.fill(0);
    let typical = 0;
    for (let i = 0; i < count; i++) typical += this.#shape[i]! * features[i]!;
    assert(typical > 0, 'a step without work was measured');
    for (let i = 0; i < count; i++) {
      this.#weights[i] = (this.#shape[i]! * ms) / typical;
      this.#covariance[i * count + i] = PRIOR_VARIANCE * this.#weights[i]! ** 2;
    }
  }

  #accepts(features: readonly number[], ms: number): boolean {
    const ratio = ms / this.predict(features);
    const isFar = ratio > OUTLIER_RATIO || ratio < 1 / OUTLIER_RATIO;
    if (!isFar) {
      this.#pendingOutlier = undefined;
      return true;
    }
    if (ratio > 1 && this.#pendingOutlier === undefined) {
      this.#pendingOutlier = ratio;
      return false;
    }
    // If no similar step was measured, the weights are wrong and not the speed.
    const isUnknown = this.#uncertainty(features) / ms ** 2 > CERTAIN;
    const closest = ratio > 1 ? Math.min(ratio, this.#pendingOutlier ?? ratio) : ratio;
    this.#pendingOutlier = undefined;
    if (!isUnknown) this.#slowdown *= closest;
    return true;
  }

  #isFinite(): boolean {
    const count = this.#weights.length;
    let sum = 0;
    for (let i = 0; i < count; i++) {
      if (this.#covariance[i * count + i]! < 0) return false;
      sum += this.#weights[i]!;
    }
    return sum > 0 && Number.isFinite(sum);
  }

  /** The variance of the prediction, in units of the noise. Leaves `covariance * features` in `#gain`. */
  #uncertainty(features: readonly number[]): number {
    const count = this.#weights.length;
    let variance = 0;
    for (let i = 0; i < count; i++) {
      let sum = 0;
      for (let j = 0; j < count; j++) sum += this.#covariance[i * count + j]! * features[j]!;
      this.#gain[i] = sum;
      variance += sum * features[i]!;
    }
    return variance;
  }

  #learn(features: readonly number[], ms: number): void {
    const count = this.#weights.length;
    const variance = this.#uncertainty(features) / ms ** 2;
    if (!(variance > 0)) return;
    const error = (ms - this.average(features)) / ms;
    // A step with variance v increases the certainty by λ (1 + v) / v, so v converges to (1 - λ) / λ.
    const information = KEPT - (1 - KEPT) / variance;
    const shrink = information / (1 + information * variance) / ms ** 2;
    for (let i = 0; i < count; i++)
      for (let j = 0; j <= i; j++) {
        const value = this.#covariance[i * count + j]! - this.#gain[i]! * this.#gain[j]! * shrink;
        this.#covariance[i * count + j] = value;
        this.#covariance[j * count + i] = value;
      }
    let negative = 0;
    for (let i = 0; i < count; i++) {
      const weight = this.#weights[i]! + ((this.#gain[i]! / ms) * error) / (1 + variance);
      this.#weights[i] = Math.max(weight, 0);
      negative += Math.min(weight, 0) * features[i]!;
    }
    if (negative < 0) this.#reducePrediction(features, -negative);
  }

  /**
   * A weight that became negative is 0 now, so the prediction is larger than learned. All weights become smaller instead. Otherwise the
   * weights of similar steps grow for ever, and the slowdown hides it until a different step comes.
   */
  #reducePrediction(features: readonly number[], byMs: number): void {
    const kept = Math.max(1 - byMs / this.average(features), 0.5);
    for (let i = 0; i < this.#weights.length; i++) this.#weights[i]! *= kept;
  }
}

/** The share of the knowledge about similar steps that each step keeps. */
const KEPT = 0.97;
/** The slowdown is multiplied by this power of the ratio of measured to predicted duration. */
const SPEED_GAIN = 0.3;
/** The variance of the first weights: a standard deviation of half a weight, if the noise is a tenth. */
const PRIOR_VARIANCE = 25;
/** Twice the variance of the noise: about one earlier observation of a similar step. */
const CERTAIN = 2;
const OUTLIER_RATIO = 2;

const isPositive = (value: number): boolean => value > 0 && value < Infinity;

/** The message is built only if the check fails, because numbers as text cost more than the check. */
function fail(message: string): never {
  assert(false, message);
}
