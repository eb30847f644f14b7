import type { StepLoad } from '../pace.ts';
import { StepCost } from '../step-cost.ts';

/** The decodes of a step, with the sum of their contexts, and their drafts with theirs. */
export interface DraftRows {
  readonly decodes: number;
  readonly decodeContext: number;
  readonly drafts: number;
  readonly draftContext: number;
}

/** The duration of steps of decodes and drafts, learned from the measured steps. */
export class DraftCost {
  readonly #cost = new StepCost(COST_SHAPE);

  /** `ms` is undefined if the step's duration is not only computing. */
  observe({ decodes, decodeContext, draftTokens, draftContext, promptTokens }: StepLoad, ms: number | undefined): void {
    if (ms === undefined || decodes === 0 || promptTokens > 0) return;
    this.#cost.observe(features({ decodes, decodeContext, drafts: draftTokens, draftContext }), ms);
  }

  /** Relative to a typical machine before the first observation. */
  msOf(rows: DraftRows): number {
    const wanted = features(rows);
    if (this.#cost.observations > 0) return this.#cost.predict(wanted);
    return wanted.reduce((sum, feature, i) => sum + feature * COST_SHAPE[i]!, 0);
  }
}

/** A step reads the weights once; a row costs little until the kernels need a further pass; KV is read for each request. */
function features({ decodes, decodeContext, drafts, draftContext }: DraftRows): number[] {
  return [1, decodes + drafts, drafts > 0 ? 1 : 0, decodeContext, draftContext];
}

const COST_SHAPE = [12, 1, 1, 1 / 400, 1 / 2000];
