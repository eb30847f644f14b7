import type { KvCacheSpec } from '../core/kv-spec.ts';
import type { StepPlan, StepResult } from '../core/step.ts';

/**
 * Computes steps: owns the model's weights and the device pool, knows nothing of queues, prompts or text.
 *
 * `execute` is called with one plan at a time, in order; the next call comes after the former's promise is settled.
 * While it runs the event loop stays free (the graph computes on a native thread). Within a layer all KV of the step is
 * written before any of it is read, so sequences of one step may read each other's blocks in batch order.
 * A rejection means that the runner itself is broken; a request's fault never rejects.
 */
export interface Runner {
  readonly kvCacheSpec: KvCacheSpec;
  /** Length of a logits row. */
  readonly vocabSize: number;
  execute(plan: StepPlan): Promise<StepResult>;
  /** Frees native memory. Waits for a running step; idempotent. */
  close(): Promise<void>;
}
