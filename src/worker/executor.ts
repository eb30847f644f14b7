import type { KvCacheSpec } from '../core/kv-spec.ts';
import type { StepPlan, StepResult } from '../core/step.ts';

/**
 * Runs steps for the engine, wherever the workers are: in this process (`executor-inline`) or in others.
 * Same calling rules as `Runner`.
 */
export interface Executor {
  readonly kvCacheSpec: KvCacheSpec;
  execute(plan: StepPlan): Promise<StepResult>;
  close(): Promise<void>;
}
