import type { JsonObject } from '../base/json.ts';
import type { ConnectorMetadata, ConnectorOutput } from '../connector/connector.ts';
import type { RequestStats } from '../core/request.ts';
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
    readonly affectedTokens: number;
    /** What connectors have counted, over all ranks, by name: `loadedBlocks`, `savedBlocks`, `loadFailed.corrupt`, ... */
    readonly counters: Readonly<Record<string, number>>;
  };
}
