import type { ConnectorOutput, KvIdentity } from '../connector/connector.ts';
import type { BlockId } from '../core/ids.ts';
import type { KvCacheSpec } from '../core/kv-spec.ts';
import type { StepResult } from '../core/step.ts';
import type { HiddenStates } from '../runner/contract.ts';
import type { RunnerTimings } from '../runner/ggml-runner.ts';
import type { ScheduledStep } from '../scheduler/contract.ts';

/**
 * One rank of the pipeline: a runner with some of the model's layers, their part of every KV block, and the worker half of
 * the connector. In this process (`rank-inline.ts`) or in one of its own (`rank-process.ts`).
 *
 * `execute` is called with one step at a time, in order, on all ranks at once: transfers begin at the call, computing
 * when the rank before has handed on its hidden states. A rejection means that the rank is broken for good; the fault
 * of a request or of a store is part of the result.
 */
export interface Rank {
  /** Of this rank's layers. */
  readonly kvCacheSpec: KvCacheSpec;
  readonly identity: KvIdentity;
  /** `upstream`: what the rank before makes of the step; undefined for rank 0. It may reject: then so does this. */
  execute(step: ScheduledStep, upstream: Promise<HandedOn> | undefined): Promise<RankOutput>;
  /** Absent where a rank is always there: in this process. */
  trouble?(): RankTrouble | undefined;
  /** Saves that are under way get `timeoutMs` to finish, then native memory is freed. Idempotent. */
  close(options: { readonly timeoutMs: number }): Promise<void>;
}

/** A rank, and what is known of it for people. */
export interface OpenedRank extends Rank {
  /** What computes attention, and why not something faster. */
  readonly attentionDescription: string;
  /** The process that it is in. */
  readonly processId: number;
  /** Where the time of all its steps went. */
  timings(): RankTimings;
}

/** A rank in this process. */
export interface LocalRank extends OpenedRank {
  /** Whether kernels run for a step right now. */
  readonly isComputing: boolean;
}

/** A rank that does not serve at the moment. */
export interface RankTrouble {
  readonly rank: string;
  readonly processId: number;
  /** `silent`: does not answer. `restarting`: its process has died, and the next one loads. `gone`: it is given up. */
  readonly state: 'silent' | 'restarting' | 'gone';
  /** A sentence. */
  readonly message: string;
}

export type RankTimings = Readonly<RunnerTimings>;

/** What the next rank needs of a step. */
export interface HandedOn {
  /** F32 `[embedding, rows]` of all sequences that are not in `leftOut`, in batch order; absent from the last rank. */
  readonly hidden?: HiddenStates;
  /**
   * Sequences (indices in the plan) that this rank or one before it did not compute, because a load had failed or its
   * process had died.
   */
  readonly leftOut: readonly number[];
}

/** What a rank made of a step. Of the last rank, `sampled` and `failures` count; of all others, `hidden`. */
export interface RankOutput extends HandedOn {
  readonly result: StepResult;
  readonly connectorOutput?: ConnectorOutput;
  /** Pages whose content this rank has lost: all of them, when its process died and came back empty. */
  readonly invalidBlocks?: readonly BlockId[];
}
