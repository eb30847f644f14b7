import type { KvasirError } from '../base/errors.ts';
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
  };
  readonly stats: RequestStats;
}

/** Counters of one request, running totals. */
export interface RequestStats {
  readonly promptTokens: number;
  /** Prompt tokens whose KV was found in the device pool when the request was first admitted. */
  readonly cachedTokens: number;
  readonly outputTokens: number;
  /** Tokens that had been computed for this request and were computed again. */
  readonly recomputedTokens: number;
  readonly preemptions: number;
}
