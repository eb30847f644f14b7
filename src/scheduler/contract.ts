import type { JsonObject } from '../base/json.ts';
import type { ConnectorMetadata, RankReport } from '../connector/connector.ts';
import type { ConnectorStats } from '../connector/connector-stats.ts';
import type { RequestStats } from '../core/request.ts';
import type { StepPlan, StepResult } from '../core/step.ts';

/** A plan, with the orders for transfers if there is a connector. May have no sequences. */
export interface ScheduledStep extends StepPlan {
  readonly connectorMetadata?: ConnectorMetadata;
}

/** A result, with a transfer report of each rank if there is a connector. */
export interface ExecutedStep extends StepResult {
  readonly connectorOutputs?: readonly RankReport[];
  /**
   * Sequences (indices in the plan) that were not computed because a load of this step failed. Their tokens would not
   * count in any case.
   */
  readonly leftOut?: readonly number[];
  /** Those of `leftOut` that some ranks have computed: on these ranks, running states are overwritten. */
  readonly partlyComputed?: readonly number[];
}

/** The answer for a request that was aborted. */
export interface AbortedRequest {
  readonly stats: RequestStats;
  /** The connector's answer to the client; absent if the connector gives no answer. */
  readonly kvTransferParams?: JsonObject;
}

export interface SchedulerOptions {
  /** The token budget of a step. Default 512. */
  readonly maxNumBatchedTokens: number;
  /**
   * The largest number of tokens of one request in a step, so that a long prompt does not delay others. Default: no
   * limit.
   */
  readonly longPrefillTokenThreshold?: number;
  /**
   * Limits the duration of steps with streams: prompts are computed in smaller chunks. Milliseconds, or `auto`:
   * relative to a step of decodes only. Default 0: no limit. With a limit, `plan` and `apply` need the time.
   */
  readonly targetInterTokenLatency?: number | 'auto';
  /** The number of running slots. Default 64. */
  readonly maxNumSeqs: number;
  /** The largest number of prompt and output tokens of a request. */
  readonly maxModelLen: number;
  readonly enablePrefixCaching: boolean;
  /** A step computes a prompt whole or not at all: for models whose tokens see later tokens. Prompts fit `maxNumBatchedTokens`. */
  readonly wholePrompts?: boolean;
  readonly policy: 'fcfs' | 'priority';
  /**
   * What happens to a request whose KV is invalid: it computes the KV again, or it ends with an error. Default
   * `recompute`.
   */
  readonly kvLoadFailurePolicy?: 'recompute' | 'fail';
  /** The part of the pool's blocks that pinned prefixes may have; they are evicted last. Default 0. */
  readonly pinShare?: number;
}

/** `recovering`: KV of the request was lost, and some of it is not computed or loaded again yet. */
export type RequestPhase = 'queued' | 'loading' | 'prefill' | 'decode' | 'recovering';

export interface SchedulerStats {
  readonly running: number;
  readonly waiting: number;
  /** Requests that have blocks and wait for a load; they use no running slot. */
  readonly waitingForRemoteKv: number;
  readonly blocks: {
    readonly total: number;
    readonly free: number;
    readonly cached: number;
    readonly referenced: number;
  };
  readonly preemptions: number;
  readonly transfers: {
    /** Transfers that are not drained: I/O may still touch their blocks. */
    readonly open: number;
    /** Reports that were late, duplicate or about an unknown transfer. */
    readonly ignored: number;
    /** Saves that a step had to flush before it overwrote their blocks. */
    readonly flushedSaves: number;
    /** Blocks that a connector promised and whose loads failed. */
    readonly failedLoads: number;
    /** How often a request planned again because it had invalid blocks. */
    readonly recoveries: number;
    /** Tokens of the invalid blocks of these requests. */
    readonly recoveredTokens: number;
    /** Requests that the policy `fail` ended. */
    readonly failedRequests: number;
    /** Tokens of the invalid blocks of all these requests, whether they planned again or ended. */
    readonly affectedTokens: number;
    /** The connectors' counters when they are read, summed over all ranks: `loadedBlocks`, `savedBlocks`, `loadFailed.corrupt`, ... */
    readonly counters: Readonly<Record<string, number>>;
    /** The same counts as fields, without those of the connector's own choice. */
    readonly connector: ConnectorStats;
  };
}
