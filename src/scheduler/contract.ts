import type { JsonObject } from '../base/json.ts';
import type { ConnectorMetadata, ConnectorOutput, TransferId } from '../connector/connector.ts';
import type { BlockId, RequestId } from '../core/ids.ts';
import type { EngineRequest, RequestStats, RequestUpdate } from '../core/request.ts';
import type { StepPlan, StepResult } from '../core/step.ts';

/** A plan, and what its workers are told about transfers; without a connector just a plan. May have no sequences. */
export interface ScheduledStep extends StepPlan {
  readonly connectorMetadata?: ConnectorMetadata;
}

/** A result, and what all workers together report about transfers. */
export interface ExecutedStep extends StepResult {
  readonly connectorOutput?: ConnectorOutput;
  /**
   * Sequences (indices in the plan) that were not computed because a load of this step failed. The scheduler would throw
   * their rows away in any case.
   */
  readonly leftOut?: readonly number[];
}

/**
 * Decides what each step computes. Synchronous and pure: no I/O, no clock, no chance. One plan is out at a time:
 * `plan`, then `apply` with its result, then the next `plan`; `add` and `abort` may come at any time between calls,
 * also while a plan is out.
 */
export interface SchedulerApi {
  /** Queues a request. Its id must be new. The caller has checked that it fits `maxModelLen` and the pool. */
  add(request: EngineRequest): void;
  /**
   * Ends a request in whatever state it is. If a plan that contains it is out, its blocks stay held until `apply`.
   * An unknown or finished id is ignored: clients go away at any time. Returns its last word if it was known.
   */
  abort(id: RequestId): AbortedRequest | undefined;
  /**
   * The next step, or undefined when there is nothing to do before `nextWakeMs`, `ringTransfers` or another `add`.
   * `nowMs`: any monotonic clock; needed with a connector, because every wait for one has a deadline, and with a target
   * latency, because the time from `plan` to `apply` is the duration of the step.
   */
  plan(nowMs?: number): ScheduledStep | undefined;
  /** Turns a result into new state: one update for each request that got a token or ended. */
  apply(plan: StepPlan, result: ExecutedStep, nowMs?: number): readonly RequestUpdate[];
  /** Transfers have ended, or a connector knows more: the next `plan` is to ask. Cheap; may come at any time. */
  ringTransfers(): void;
  /** Whether a report about this transfer is still of interest: for whoever gathers the reports of several workers. */
  isOpenTransfer(id: TransferId): boolean;
  /** When `plan` is to be called again after it returned undefined, if nothing happens before; undefined: no need. */
  nextWakeMs(): number | undefined;
  /**
   * The content of these pages is lost or wrong. Whoever has one of them computes again what is missing, or ends with
   * `error` (`kvLoadFailurePolicy`): the updates returned. While a plan is out the pages are added to its result's
   * invalid ones, and the updates come from `apply`.
   */
  invalidate(blocks: readonly BlockId[]): readonly RequestUpdate[];
  hasWork(): boolean;
  stats(): SchedulerStats;
  /** Crashes by assertion when any invariant (I4, I5, I7) does not hold. O(blocks). */
  checkInvariants(): void;
}

/** What is left to be said of a request that was ended from outside. */
export interface AbortedRequest {
  readonly stats: RequestStats;
  /** The connector's word to the client; absent when it has none. */
  readonly kvTransferParams?: JsonObject;
}

export interface SchedulerOptions {
  /** Rows of one step at most. Default 512. */
  readonly maxNumBatchedTokens: number;
  /** Rows of one step that one request takes at most, so that a long prompt does not keep others waiting. Default: no limit. */
  readonly longPrefillTokenThreshold?: number;
  /**
   * Bounds the duration of steps in which streams wait for a token: prompts are cut into smaller chunks. Milliseconds, or
   * `auto`: relative to a step of the decodes alone. Default 0: no bound. `plan` and `apply` then need the time.
   */
  readonly targetInterTokenLatency?: number | 'auto';
  /** Requests running at once at most. Default 64. */
  readonly maxNumSeqs: number;
  /** Prompt plus output tokens of a request at most. */
  readonly maxModelLen: number;
  readonly enablePrefixCaching: boolean;
  readonly policy: 'fcfs' | 'priority';
  /** What becomes of a request whose KV turns out to be invalid. Default `recompute`: nobody notices. */
  readonly kvLoadFailurePolicy?: 'recompute' | 'fail';
}

export interface SchedulerStats {
  readonly running: number;
  readonly waiting: number;
  /** Requests that have pages and wait for a load; they take no seat of those that run. */
  readonly loading: number;
  readonly blocks: {
    readonly total: number;
    readonly free: number;
    readonly cached: number;
    readonly referenced: number;
  };
  readonly preemptions: number;
  readonly transfers: {
    /** Transfers that may still touch pages. */
    readonly open: number;
    /** Reports that were late, double or about nothing known. */
    readonly ignored: number;
    /** Blocks that were promised and did not come. */
    readonly failedLoads: number;
    /** How often a request had to plan again because KV of its was lost, and the tokens of the blocks that were. */
    readonly recoveries: number;
    readonly lostTokens: number;
    /** What connectors have counted, over all ranks, by name: `loadedBlocks`, `savedBlocks`, `loadFailed.corrupt`, ... */
    readonly counters: Readonly<Record<string, number>>;
  };
}
