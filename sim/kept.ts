import type { RequestUpdate } from '../src/core/request.ts';
import type { StepPlan } from '../src/core/step.ts';

/** A copy that stays valid: the scheduler writes the next plan into the same arrays. Token buffers and block tables are shared. */
export const keptPlan = <Plan extends StepPlan>(plan: Plan): Plan => ({
  ...plan,
  sequences: plan.sequences.map((sequence) => ({ ...sequence, spans: sequence.spans.map((span) => ({ ...span })) })),
});

/** A copy that stays valid: the scheduler writes the next update of the request into the same object. */
export const keptUpdate = (update: RequestUpdate): RequestUpdate => ({
  ...update,
  newTokens: [...update.newTokens],
  stats: { ...update.stats },
});
