import { keptGraphsMax } from '../../core/kept-graphs.ts';
import { StepCost } from '../step-cost.ts';
import type { StepLoad } from '../step-load.ts';

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
 * A step with a number of rows that no recent step had needs a new compute graph. On small models that takes as long as computing. The
 * next step with as many rows does not need it, so the prediction leaves it out. Of two such steps, the model learns from the second only:
 * with many requests, the number of rows may be new in most steps.
 */
export class DraftCost {
  readonly #plain = new StepCost(PLAIN_SHAPE);
  /** In milliseconds at the speed of `#plain`. */
  readonly #drafted = new StepCost(DRAFTED_SHAPE);
  /** The numbers of rows whose graphs the runner has, the last used last. NaN: of a step with prompts. */
  readonly #kept: number[] = [];
  /** Steps with a new graph, of which every second one is left out. */
  #newGraphs = 0;

  /** Called after each step. `ms` is undefined if the step is not to be learned from. Returns whether the model has learned from the step. */
  observe(load: StepLoad, ms: number | undefined): boolean {
    const { decodes, decodeContext, draftTokens, draftContext, promptTokens } = load;
    const rows = { decodes, decodeContext, drafts: draftTokens, draftContext };
    const isNewGraph = this.#computed(promptTokens > 0 ? Number.NaN : decodes + draftTokens);
    if (ms === undefined || decodes === 0 || promptTokens > 0) return false;
    if (isNewGraph && ++this.#newGraphs % 2 === 1) return false;
    if (draftTokens === 0) this.#plain.observe(plainFeatures(rows), ms);
    else this.#drafted.observe(draftedFeatures(rows), ms / this.#plain.slowdown);
    return true;
  }

  /** Of the next step. */
  msOf(rows: DraftRows): number {
    if (rows.drafts === 0) return this.#predictPlain(rows);
    if (this.#drafted.observations === 0) return this.typicalMsOf(rows);
    return this.#plain.slowdown * this.#drafted.predict(draftedFeatures(rows));
  }

  /** The same, if drafts cost as much as on a typical machine. */
  typicalMsOf(rows: DraftRows): number {
    if (rows.drafts === 0) return this.#predictPlain(rows);
    const ratio = typical(draftedFeatures(rows), DRAFTED_SHAPE) / typical(plainFeatures(rows), PLAIN_SHAPE);
    return ratio * this.#predictPlain(rows);
  }

  /** Relative to a typical machine before the first observation. */
  #predictPlain(rows: DraftRows): number {
    const features = plainFeatures(rows);
    return this.#plain.observations > 0 ? this.#plain.predict(features) : typical(features, PLAIN_SHAPE);
  }

  /** Returns whether the runner had to build a graph for the step. */
  #computed(rows: number): boolean {
    if (this.#kept.at(-1) === rows) return false;
    const index = this.#kept.indexOf(rows);
    if (index >= 0) this.#kept.splice(index, 1);
    else if (this.#kept.length === keptGraphsMax) this.#kept.shift();
    this.#kept.push(rows);
    return index < 0;
  }
}

/** A step reads the weights once; a row costs little until the kernels need a further pass; KV is read for each request. */
const plainFeatures = ({ decodes, decodeContext }: DraftRows): number[] => [1, decodes, decodeContext];
const PLAIN_SHAPE = [12, 1, 1 / 400];

const draftedFeatures = ({ decodes, decodeContext, drafts, draftContext }: DraftRows): number[] => [
  1,
  decodes + drafts,
  decodeContext,
  draftContext,
];
const DRAFTED_SHAPE = [13, 1, 1 / 400, 1 / 2000];

const typical = (features: readonly number[], shape: readonly number[]): number =>
  features.reduce((sum, feature, i) => sum + feature * shape[i]!, 0);
