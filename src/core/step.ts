import type { KvasirError } from '../base/errors.ts';
import type { TokenMask } from './constraint.ts';
import type { BlockId, BlockIndex, RequestId, StepId, TokenCount, TokenId } from './ids.ts';
import type { KvCacheSpec } from './kv-spec.ts';
import type { SamplingParams } from './sampling.ts';
import type { TokenBuffer } from './tokens.ts';

/**
 * The plan of a step, which the scheduler sends to a runner. The runner answers with a `StepResult`. Both are frozen
 * data; only `scheduler.apply` turns a result into new state.
 *
 * A plan is valid until its result is applied. The scheduler writes the next plan into the same arrays and objects.
 */
export interface StepPlan {
  readonly stepId: StepId;
  /** One entry per request, in batch order. A block's owner comes before the requests that read the block. */
  readonly sequences: readonly SequencePlan[];
  /** Scheduled tokens of the step: the sum of all spans. */
  readonly tokenCount: TokenCount;
  /**
   * Requests whose state in the runner may be dropped before the step: finished, aborted or preempted since the last
   * step. A preempted request may be among the sequences again.
   */
  readonly released: readonly RequestId[];
}

/** Layers [first, end) of the model. */
export interface LayerRange {
  readonly first: number;
  readonly end: number;
}

/** Positions [start, end) of a request, all computed in this step. */
export interface Span {
  readonly start: TokenCount;
  readonly end: TokenCount;
}

export interface SequencePlan {
  readonly requestId: RequestId;
  /** Prompt and output tokens so far; read-only for the runner. Contains every span. */
  readonly tokens: TokenBuffer;
  /**
   * Ascending and disjoint. All KV that a span's tokens read is valid already, or an earlier token of this step writes
   * it. With drafts, the last span also has their positions: it ends at `tokens.length` + the number of drafts.
   */
  readonly spans: readonly Span[];
  /** One block table per KV group, indexed by `floor(position / blockSize)`. */
  readonly blockTables: readonly BlockTable[];
  /**
   * Per KV group, the tables through which KV is *written*; absent if `blockTables` serve for both. They have
   * NULL_BLOCK where a block is valid already or another request owns it, as for the last token of a fully cached
   * prompt.
   */
  readonly writeTables?: readonly BlockTable[];
  /** The digest of the LoRA adapter with which all of its tokens are computed; absent: none. */
  readonly adapter?: string;
  /** Present if the last token's logits are to be sampled: the last span then ends at `tokens.length`. */
  readonly sample?: SampleRequest;
  /** The tokens that the sample may be; absent: all. Only with `sample`. */
  readonly allowed?: TokenMask;
  /** Present if the request asks for results of prompt tokens that this step computes. */
  readonly prompt?: PromptRows;
  /** Only with `sample`, and if the step computes no other token of the request but the last. */
  readonly drafts?: Drafts;
  /**
   * Only these layers of the spans are computed in this step; absent: all layers. Layered prefill (ADR 27): the next steps
   * with this request have the same spans and the layers that follow, and the runner keeps the hidden states until then. The KV
   * is valid after the step with the last layer. The sequence is the last one and is not sampled. All others are decodes
   * whose rows are all sampled.
   */
  readonly layers?: LayerRange;
}

/**
 * Drafts of the tokens that follow `SequencePlan.tokens`. A row is computed for each of them. The runner samples after
 * the last token first, and after a draft only if the draft equals the token that was sampled for its position.
 */
export interface Drafts {
  readonly tokens: Int32Array;
  /** As `SequencePlan.allowed`, for the token after each draft; absent: all. */
  readonly allowed?: readonly TokenMask[];
}

/** A text whose next tokens a prediction layer drafts: all tokens of a request so far. */
export interface DraftRequest {
  readonly requestId: RequestId;
  /** Tokens of the text. */
  readonly length: number;
}

/** Prompt positions [start, end), the same or the last part of the last span, whose results a request asks for. */
export interface PromptRows extends Span {
  /**
   * The result of a position is the logprobs of the token after it, with this many top tokens; or, if absent, the hidden
   * state after the model's last norm.
   */
  readonly topCount?: number;
}

export interface BlockTable {
  /** The block at each block index; only the first `length` entries count. NULL_BLOCK where the group has no block. */
  readonly ids: Int32Array;
  readonly length: number;
}

export interface SampleRequest {
  readonly params: SamplingParams;
  /** How many of `tokens` are prompt tokens; the others are output tokens. */
  readonly promptLength: TokenCount;
  /**
   * `EngineRequest.eosTokenIds`. The sampler masks them and the stop tokens until there are `minTokens` output tokens.
   */
  readonly eosTokenIds: readonly TokenId[];
}

export interface StepResult {
  readonly stepId: StepId;
  /** Parallel to `StepPlan.sequences`; undefined where the plan asks for no sample, or where sampling failed. */
  readonly sampled: readonly (Sample | undefined)[];
  /** Sequences that got no token because of an error of their own; the error does not affect other sequences (I9). */
  readonly failures?: readonly SequenceFailure[];
  /** One entry for each sequence with `prompt` that this step computed without a failure. Absent: no entry. */
  readonly prompts?: readonly PromptResult[];
  /**
   * Blocks whose KV was found invalid while the step ran. Tokens that depended on them do not count, nor do samples
   * from these tokens. The requests compute the invalid KV again.
   */
  readonly invalidBlocks?: readonly BlockId[];
}

export interface SequenceFailure {
  /** Index in `StepPlan.sequences`. */
  readonly sequence: number;
  readonly error: KvasirError;
}

/** The results of `SequencePlan.prompt`, position by position. */
export interface PromptResult {
  /** Index in `StepPlan.sequences`. */
  readonly sequence: number;
  readonly logprobs?: readonly TokenLogprobs[];
  /** F32 `[embedding, positions]`; or one vector for the whole prompt, if the model has matrices after the pooling. */
  readonly hidden?: Float32Array;
}

/** The sample of a sequence. */
export interface Sample extends SampledToken {
  /**
   * The tokens that were sampled after accepted drafts. All of them but the last are accepted drafts; the token before
   * them, `token`, is an accepted draft too.
   */
  readonly further?: readonly SampledToken[];
}

export interface SampledToken {
  readonly token: TokenId;
  /** Present when `SamplingParams.logprobs` is set. */
  readonly logprobs?: TokenLogprobs;
}

/**
 * Natural logarithms of the model's own probabilities: before temperature, penalties, bias and filters (as in vLLM). If
 * the output has a grammar, they are the probabilities among the tokens that the grammar allows (as in vLLM).
 */
export interface TokenLogprobs {
  /** Of the chosen token. */
  readonly logprob: number;
  /** 1 = most probable. */
  readonly rank: number;
  /** The most probable tokens, best first; as many as `SamplingParams.logprobs`. */
  readonly top: readonly { readonly token: TokenId; readonly logprob: number }[];
}

/** The spans without the positions of drafts. `tokenCount`: `tokens.length`. */
export function spansOfTokens({ spans, drafts }: SequencePlan, tokenCount: number): readonly Span[] {
  return drafts === undefined ? spans : spansBelow(spans, tokenCount);
}

/** Not in `spansOfTokens`: its closure would allocate memory for each request, also without drafts. */
const spansBelow = (spans: readonly Span[], tokenCount: number): readonly Span[] =>
  spans.map(({ start, end }) => ({ start, end: Math.min(end, tokenCount) as TokenCount }));

/** Whether a later step computes more layers of the sequence's spans. */
export const hasMoreLayers = (
  { layers }: SequencePlan,
  { sliceableLayers }: Pick<KvCacheSpec, 'sliceableLayers'>,
): boolean => layers !== undefined && layers.end !== sliceableLayers;

export function areSameSpans(a: readonly Span[], b: readonly Span[]): boolean {
  if (a.length !== b.length) return false;
  for (let i = 0; i < a.length; i++) if (a[i]!.start !== b[i]!.start || a[i]!.end !== b[i]!.end) return false;
  return true;
}

export const blockAt = (table: BlockTable, index: BlockIndex): BlockId => table.ids[index] as BlockId;
