import type { KvCacheSpec } from '../core/kv-spec.ts';
import type { ExecutedStep, ScheduledStep } from '../scheduler/contract.ts';
import type { RankTrouble } from './rank.ts';

/**
 * Runs steps for the engine, wherever the ranks are: in this process or in others. `execute` is called with one step at
 * a time, in order. A step may have no sequences: then it only moves transfers. A rejection is the end of the engine.
 */
export interface Executor {
  /** Of the whole model: all ranks' layers and bytes. */
  readonly kvCacheSpec: KvCacheSpec;
  execute(step: ScheduledStep): Promise<ExecutedStep>;
  /** Ranks that do not serve at the moment. Absent where that cannot be. */
  troubles?(): readonly RankTrouble[];
  /** Saves that are under way get some seconds to finish. Idempotent. */
  close(): Promise<void>;
}
