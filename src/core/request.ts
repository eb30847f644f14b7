import type { KvasirError } from '../base/errors.ts';
import type { JsonObject } from '../base/json.ts';
import type { RequestId, TokenId } from './ids.ts';
import type { SamplingParams } from './sampling.ts';

/** What the engine asks of the scheduler: one prompt, one completion. Frozen. */
export interface EngineRequest {
  readonly id: RequestId;
  readonly promptTokens: Int32Array;
  readonly params: SamplingParams;
  /** Tokens that end the completion unless `ignoreEos` (a model may have several: end of text, end of turn). */
  readonly eosTokenIds: readonly TokenId[];
  /** Separates prefix caches (I10); requests share blocks only with an equal salt. */
  readonly cacheSalt?: string;
  /** Lower is sooner, as in vLLM; ties by arrival. */
  readonly priority: number;
  /** A word from the client to the connector (vLLM's `kv_transfer_params`); the engine does not read it. */
  readonly kvTransferParams?: JsonObject;
}

/** OpenAI's finish reasons, and `error` and `abort` as in vLLM. */
export type FinishReason = 'stop' | 'length' | 'abort' | 'error';

/** What one step did to one request. */
export interface RequestUpdate {
  readonly requestId: RequestId;
  /** Tokens that were sampled in this step; at present zero or one. */
  readonly newTokens: readonly import('./step.ts').SampledToken[];
  readonly finish?: {
    readonly reason: FinishReason;
    /** The stop token that ended it, when one did. */
    readonly stopToken?: TokenId;
    /** Why, when the reason is `error`. */
    readonly error?: KvasirError;
    /** The connector's word to the client; absent when it has none. */
    readonly kvTransferParams?: JsonObject;
  };
  readonly stats: RequestStats;
}

/** Counters of one request, running totals. */
export interface RequestStats {
  readonly promptTokens: number;
  /** Prompt tokens whose KV was found when the request was first admitted, in the device pool or outside. */
  readonly cachedTokens: number;
  /** Of these, the ones that a connector had promised; absent is none. */
  readonly externalTokens?: number;
  readonly outputTokens: number;
  /**
   * Tokens whose rows were computed for this request, counted in every step that computed them. Sequences that a worker
   * left out of a step (a load had failed) were not computed.
   */
  readonly computedTokens: number;
  /**
   * Of these, the tokens beyond those that had to be computed: tokens computed again, and tokens whose KV was in the pool or
   * promised by a connector when the request was first admitted.
   */
  readonly recomputedTokens: number;
  /** Blocks that a connector had promised this request and that did not arrive; absent is none. */
  readonly failedLoads?: number;
  readonly preemptions: number;
}
