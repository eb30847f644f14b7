import type { KvasirError } from '../base/errors.ts';
import type { JsonObject } from '../base/json.ts';
import type { OutputConstraint } from './constraint.ts';
import type { RequestId, TokenId } from './ids.ts';
import type { SamplingParams } from './sampling.ts';
import type { PromptResult, SampledToken } from './step.ts';

/** One prompt and one completion, as the engine adds it to the scheduler. Frozen. */
export interface EngineRequest {
  readonly id: RequestId;
  readonly promptTokens: Int32Array;
  readonly params: SamplingParams;
  /** Present if the request asks for an embedding of its prompt; `params.maxTokens` is 0 then. */
  readonly pooling?: Pooling;
  /** The runner pools, because matrices follow: it gives one vector for the prompt instead of hidden states. */
  readonly isPooled?: boolean;
  /** Tokens that end the completion unless `ignoreEos` (a model may have several: end of text, end of turn). */
  readonly eosTokenIds: readonly TokenId[];
  /** Separates prefix caches (I10); requests share blocks only with an equal salt. */
  readonly cacheSalt?: string;
  /** Absent: the model without an adapter. */
  readonly adapter?: AdapterRef;
  /** Lower is sooner, as in vLLM; ties by arrival. */
  readonly priority: number;
  /** For whom the request is; see `TenantTurns` of the scheduler. Absent: all requests without one share their turns. */
  readonly tenant?: string;
  /** From the client to the connector (vLLM's `kv_transfer_params`); the engine does not read it. */
  readonly kvTransferParams?: JsonObject;
  /** The request computes nothing: it ends when the loads of the blocks that tiers have for its prompt end. */
  readonly loadOnly?: true;
  /** Restricts the output to a grammar; absent = any text. */
  readonly constraint?: OutputConstraint;
}

/** A loaded LoRA adapter. Requests share blocks only with an equal digest (I10). */
export interface AdapterRef {
  /** By which requests ask for it. */
  readonly name: string;
  /** Of its file: the name of its weights in runners and in the keys of blocks. */
  readonly digest: string;
}

/** Whose hidden state is the embedding of a prompt: the mean of all tokens, the first token, or the last token. */
export type Pooling = 'mean' | 'cls' | 'last';
export const poolings: readonly Pooling[] = ['mean', 'cls', 'last'];
/** What a user may choose: a pooling, or the scores of a reranker. */
export type PoolingChoice = Pooling | 'rank';
export const poolingChoices: readonly PoolingChoice[] = [...poolings, 'rank'];

/** OpenAI's finish reasons, and `error` and `abort` as in vLLM. */
export type FinishReason = 'stop' | 'length' | 'abort' | 'error';

/** What one step changed for one request. */
export interface RequestUpdate {
  readonly requestId: RequestId;
  /** Tokens that were sampled in this step: zero or one, and one more for each accepted draft. */
  readonly newTokens: readonly SampledToken[];
  /** The results of further prompt positions. Each position comes once, in ascending order. */
  readonly prompt?: Omit<PromptResult, 'sequence'>;
  readonly finish?: {
    readonly reason: FinishReason;
    /** The stop token that ended the request, if there is one. */
    readonly stopToken?: TokenId;
    /** Present if the reason is `error`. */
    readonly error?: KvasirError;
    /** The connector's answer to the client; absent if the connector gives no answer. */
    readonly kvTransferParams?: JsonObject;
  };
  readonly stats: RequestStats;
}

/** Counters of one request, running totals. */
export interface RequestStats {
  readonly promptTokens: number;
  /** Prompt tokens whose KV was in the pool, or promised by a connector, when the request was first admitted. */
  readonly cachedTokens: number;
  /** Of these, the tokens that a connector promised; absent means 0. */
  readonly externalTokens?: number;
  readonly outputTokens: number;
  /**
   * Tokens that were computed for this request, counted in every step that computed them. If a worker leaves a sequence
   * out of a step because a load failed, its tokens are not computed.
   */
  readonly computedTokens: number;
  /**
   * Of these, the tokens that a run without faults and preemptions does not compute. These are tokens that were
   * computed before, and tokens whose KV was in the pool or promised by a connector at the first admission.
   */
  readonly recomputedTokens: number;
  /** Blocks that a connector promised for this request and whose loads failed; absent means 0. */
  readonly failedLoads?: number;
  /**
   * Tokens whose KV was loaded for this request, by the place that it came from, also after a preemption. Absent: none.
   * A token counts once per load, so the sum may exceed `externalTokens`.
   */
  readonly loadedTokens?: Readonly<Record<string, number>>;
  readonly preemptions: number;
  /** Milliseconds without a token because KV was lost: from each loss to the next token. Absent: no loss, or no clock. */
  readonly recoveryMs?: number;
  /** Draft tokens that were verified; absent means 0. Their rows are not among `computedTokens` unless accepted. */
  readonly draftedTokens?: number;
  /** Of these, the drafts that became output tokens; absent means 0. */
  readonly acceptedTokens?: number;
}
