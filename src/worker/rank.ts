import type { KvIdentity, RankReport } from '../connector/connector.ts';
import type { TierOrder, TierOrderAnswer } from '../connector/tier-orders.ts';
import type { BlockId } from '../core/ids.ts';
import type { KvCacheSpec } from '../core/kv-spec.ts';
import type { DraftRequest, StepResult } from '../core/step.ts';
import type { AdapterSource } from '../ggml/lora-adapter.ts';
import type { HiddenStates, RunnerTimings } from '../runner/contract.ts';
import type { ScheduledStep } from '../scheduler/contract.ts';

/**
 * One rank of the pipeline: a runner with some of the model's layers, their part of every KV block, and the connector's
 * worker side. In this process (`rank-inline.ts`) or in its own process (`rank-process.ts`).
 *
 * `execute` is called with one step at a time, in order, on all ranks at once. Transfers begin at the call; computing
 * begins when the hidden states of the rank before arrive. A rejection means that the rank cannot continue. Errors of a
 * request or a store are part of the result.
 */
export interface Rank {
  /** Of this rank's layers. */
  readonly kvCacheSpec: KvCacheSpec;
  readonly identity: KvIdentity;
  /** `upstream`: the output of the rank before; undefined for rank 0. If it rejects, `execute` rejects. */
  execute(step: ScheduledStep, upstream: Promise<UpstreamOutput> | undefined): Promise<RankOutput>;
  /**
   * Loads a LoRA adapter, for later steps; does nothing if the rank has it. Rejects with `adapterUnusable` or an error of memory or
   * files; the rank goes on without it.
   */
  loadAdapter(source: AdapterSource): Promise<void>;
  /** No later step has it. */
  unloadAdapter(digest: string): Promise<void>;
  /** As `WorkerConnector.administer`. Rejects if the rank has no tiers. Absent: ranks of tests. */
  administer?(order: TierOrder): Promise<TierOrderAnswer>;
  /**
   * Only the last rank, if the engine speculates with `mtp`: up to `count` tokens after each text, or none. Called between steps. A rejection
   * is as one of `execute`.
   */
  draft?(requests: readonly DraftRequest[], count: number): Promise<readonly Int32Array[]>;
  /** Absent if the rank always serves, as in this process. */
  trouble?(): RankTrouble | undefined;
  /** Saves under way get `timeoutMs` to finish, then native memory is freed. Idempotent. */
  close(options: { readonly timeoutMs: number }): Promise<void>;
}

/** A rank with information for people. */
export interface OpenedRank extends Rank {
  /** The implementation of attention, and the reason if a faster one is not used. */
  readonly attentionDescription: string;
  /** The process of the rank. */
  readonly processId: number;
  /**
   * Overwrites these blocks with numbers that no model computes, for fault injection. No step is in flight. Absent in other
   * processes and with a connector, which may be reading the blocks.
   */
  readonly overwrite?: ((blocks: readonly BlockId[]) => void) | undefined;
  /** Total times of all its steps. */
  timings(): RankTimings;
}

/** A rank in this process. */
export interface LocalRank extends OpenedRank {
  /** Whether kernels run for a step at the moment, or the step waits for saves that it flushes. */
  readonly isComputing: boolean;
}

/** A rank that does not serve at the moment. */
export interface RankTrouble {
  readonly rank: string;
  readonly processId: number;
  /**
   * `silent`: does not answer. `restarting`: the process has died, and the next one loads. `gone`: no process starts
   * again.
   */
  readonly state: 'silent' | 'restarting' | 'gone';
  /** A sentence. */
  readonly message: string;
}

export type RankTimings = Readonly<RunnerTimings>;

/** The part of a rank's output that the next rank needs. */
export interface UpstreamOutput {
  /** F32 `[embedding, rows]` of all sequences that are not in `leftOut`, in batch order; absent from the last rank. */
  readonly hidden?: HiddenStates;
  /**
   * Sequences (indices in the plan) that this rank or a rank before it did not compute, because a load failed or the
   * process died.
   */
  readonly leftOut: readonly number[];
}

/** The output of a rank for a step. `sampled` is from the last rank, `hidden` from all others. */
export interface RankOutput extends UpstreamOutput {
  readonly result: StepResult;
  readonly connectorOutput?: RankReport;
  /** Blocks whose KV on this rank is invalid: all of them after its process died. */
  readonly invalidBlocks?: readonly BlockId[];
}
