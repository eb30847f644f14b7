import type { TierOrder, TierOrderAnswer } from '../connector/tier-orders.ts';
import type { KvCacheSpec } from '../core/kv-spec.ts';
import type { DraftRequest } from '../core/step.ts';
import type { AdapterSource } from '../ggml/lora-adapter.ts';
import type { ExecutedStep, ScheduledStep } from '../scheduler/contract.ts';
import type { RankTrouble } from './rank.ts';

/**
 * Runs steps for the engine, with ranks in this process or in others. `execute` is called with one step at a time, in
 * order. A step without sequences only starts and reports transfers. A rejection ends the engine.
 */
export interface Executor {
  /** Of the whole model: the layers and bytes of all ranks. */
  readonly kvCacheSpec: KvCacheSpec;
  execute(step: ScheduledStep): Promise<ExecutedStep>;
  /** Loads a LoRA adapter on all ranks, or on none. Absent: the executor computes no adapters. */
  loadAdapter?(source: AdapterSource): Promise<void>;
  /** No later step has it. */
  unloadAdapter?(digest: string): Promise<void>;
  /** Carries out an order on all ranks. Rejects with the error of one of them; the others have carried it out. Absent: there are no tiers. */
  administer?(order: TierOrder): Promise<TierOrderAnswer>;
  /** Between steps, if the engine speculates with `mtp`: `Rank.draft` of the last rank. A rejection ends the engine. */
  draft?(requests: readonly DraftRequest[], count: number): Promise<readonly Int32Array[]>;
  /** Ranks that do not serve at the moment. Absent if all ranks always serve. */
  troubles?(): readonly RankTrouble[];
  /** Saves under way get some seconds to finish. Idempotent. */
  close(): Promise<void>;
}
