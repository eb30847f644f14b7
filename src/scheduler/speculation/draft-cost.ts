import type { StepLoad } from '../pace.ts';
import { StepCost } from '../step-cost.ts';

/** The decodes of a step, with the sum of their contexts, and their drafts with theirs. */
export interface DraftRows {
  readonly decodes: number;
  readonly decodeContext: number;
  readonly drafts: number;
  readonly draftContext: number;
}

/**
 * The duration of steps of decodes and drafts, learned from the measured steps.
 *
 * Steps with drafts have a model of their own. In a common model, errors of one kind of steps would change the present speed, and so
 * the prediction of the other kind, with which they are compared.
 *
 * A step with another number of rows than the step before needs a new compute graph. On small models that takes as long
 * as computing. A step with drafts mostly needs two: its own, and that of the step without drafts after it.
 */
export class DraftCost {
  readonly #plain = new StepCost(PLAIN_SHAPE);
  /** In milliseconds at the speed of `#plain`. */
  readonly #drafted = new StepCost(DRAFTED_SHAPE);
  /** Rows of the last step; NaN after a step with prompts, and before the first step. */
  #lastRows = Number.NaN;
  #lastDecodes = Number.NaN;

  /** Called after each step. `ms` is undefined if the step's duration is not only computing. */
  observe({ decodes, decodeContext, draftTokens, draftContext, promptTokens }: StepLoad, ms: number | undefined): void {
    const rows = { decodes, decodeContext, drafts: draftTokens, draftContext };
    if (ms !== undefined && decodes > 0 && promptTokens === 0) {
      if (draftTokens === 0) this.#plain.observe(plainFeatures(rows, this.#isNewGraph(rows)), ms);
      else this.#drafted.observe(draftedFeatures(rows, this.#isNewGraph(rows)), ms / this.#plain.slowdown);
    }
    this.#lastRows = promptTokens > 0 ? Number.NaN : decodes + draftTokens;
    this.#lastDecodes = promptTokens > 0 ? Number.NaN : decodes;
  }

  /** Of the next step. */
  msOf(rows: DraftRows): number {
    const isNewGraph = this.#isNewGraph(rows);
    if (rows.drafts === 0) return this.#predictPlain(rows, isNewGraph);
    if (this.#drafted.observations === 0) return this.#typicalMs(rows, isNewGraph);
    return this.#plain.slowdown * this.#drafted.predict(draftedFeatures(rows, isNewGraph));
  }

  /** What the next step costs, with the new graph of the step after it. */
  priceOf(rows: DraftRows): number {
    return this.msOf(rows) + (rows.drafts > 0 ? this.#newGraphMs(rows) : 0);
  }

  /** The same, if drafts cost as much as on a typical machine. */
  typicalPriceOf(rows: DraftRows): number {
    if (rows.drafts === 0) return this.priceOf(rows);
    return this.#typicalMs(rows, this.#isNewGraph(rows)) + this.#newGraphMs(rows);
  }

  /** The next step, if there had been no drafts in it or before it. */
  plainMs(rows: Pick<DraftRows, 'decodes' | 'decodeContext'>): number {
    return this.#predictPlain(rows, rows.decodes !== this.#lastDecodes);
  }

  #typicalMs(rows: DraftRows, isNewGraph: boolean): number {
    const ratio =
      typical(draftedFeatures(rows, isNewGraph), DRAFTED_SHAPE) / typical(plainFeatures(rows, isNewGraph), PLAIN_SHAPE);
    return ratio * this.#predictPlain(rows, isNewGraph);
  }

  #newGraphMs(rows: DraftRows): number {
    return this.#predictPlain(rows, true) - this.#predictPlain(rows, false);
  }

  #isNewGraph({ decodes, drafts }: DraftRows): boolean {
    return decodes + drafts !== this.#lastRows;
  }

  /** Relative to a typical machine before the first observation. */
  #predictPlain(rows: Pick<DraftRows, 'decodes' | 'decodeContext'>, isNewGraph: boolean): number {
    const features = plainFeatures(rows, isNewGraph);
    return this.#plain.observations > 0 ? this.#plain.predict(features) : typical(features, PLAIN_SHAPE);
  }
}

/** A step reads the weights once; a row costs little until the kernels need a further pass; KV is read for each request. */
const plainFeatures = (
  { decodes, decodeContext }: Pick<DraftRows, 'decodes' | 'decodeContext'>,
  isNewGraph: boolean,
): number[] => [1, decodes, decodeContext, isNewGraph ? 1 : 0];
const PLAIN_SHAPE = [12, 1, 1 / 400, 2];

const draftedFeatures = (
  { decodes, decodeContext, drafts, draftContext }: DraftRows,
  isNewGraph: boolean,
): number[] => [1, decodes + drafts, decodeContext, draftContext, isNewGraph ? 1 : 0];
const DRAFTED_SHAPE = [13, 1, 1 / 400, 1 / 2000, 2];

const typical = (features: readonly number[], shape: readonly number[]): number =>
  features.reduce((sum, feature, i) => sum + feature * shape[i]!, 0);
