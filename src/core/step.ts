import type { KvasirError } from '../base/errors.ts';
import type { BlockId, RequestId, StepId, TokenCount, TokenId } from './ids.ts';
import type { SamplingParams } from './sampling.ts';
import type { TokenBuffer } from './tokens.ts';

/**
 * The two messages between the scheduler and a runner: what to compute, and what came of it.
 * Both are frozen data; only `scheduler.apply` turns a result into new state.
 */
export interface StepPlan {
  readonly stepId: StepId;
  /** One entry per request in the batch, in batch order. Requests that share a block come in owner order. */
  readonly sequences: readonly SequencePlan[];
  /** Rows of the batch: the sum of all spans. */
  readonly tokenCount: TokenCount;
  /**
   * Requests whose runner-side state may be dropped before the step: finished, aborted or preempted since the last one. A
   * preempted one may be among the sequences again.
   */
  readonly released: readonly RequestId[];
}

/** Positions [start, end) of a request, all computed in this step. */
export interface Span {
  readonly start: TokenCount;
  readonly end: TokenCount;
}

export interface SequencePlan {
  readonly requestId: RequestId;
  /** Prompt and output tokens so far; read-only for the runner. Every span lies within it. */
  readonly tokens: TokenBuffer;
  /** Ascending and disjoint. Everything a span's tokens attend to is valid already or lies in an earlier row of this step. */
  readonly spans: readonly Span[];
  /** One block table per KV group, indexed by `floor(position / blockSize)`. */
  readonly blockTables: readonly BlockTable[];
  /**
   * Per KV group, where rows are *written*; absent when it is where they are read. It differs for rows whose block is valid
   * already or another request's to fill (the last token of a prompt found in full): NULL_BLOCK takes their KV.
   */
  readonly writeTables?: readonly BlockTable[];
  /** Present when the last row's logits are to be sampled: the last span then ends at `tokens.length`. */
  readonly sample?: SampleRequest;
}

export interface BlockTable {
  /** Page of each logical block; only the first `length` entries mean anything. NULL_BLOCK where the group holds none. */
  readonly ids: Int32Array;
  readonly length: number;
}

export interface SampleRequest {
  readonly params: SamplingParams;
  /** How many of `tokens` are prompt; the rest is output. */
  readonly promptLength: TokenCount;
  /** `EngineRequest.eosTokenIds`: what the sampler bans, with the stop tokens, until `minTokens` are out. */
  readonly eosTokenIds: readonly TokenId[];
}

export interface StepResult {
  readonly stepId: StepId;
  /** Parallel to `StepPlan.sequences`; absent where no sample was asked for, or where it failed. */
  readonly sampled: readonly (SampledToken | undefined)[];
  /** Sequences that got no token because of a fault of their own; the other sequences are not touched by it (I9). */
  readonly failures?: readonly SequenceFailure[];
  /**
   * Pages whose content was found lost or wrong while the step ran. Rows that depended on them do not count, whatever was
   * sampled from them; their requests compute again what is missing.
   */
  readonly invalidBlocks?: readonly BlockId[];
}

export interface SequenceFailure {
  /** Index in `StepPlan.sequences`. */
  readonly sequence: number;
  readonly error: KvasirError;
}

export interface SampledToken {
  readonly token: TokenId;
  /** Present when `SamplingParams.logprobs` is set. */
  readonly logprobs?: TokenLogprobs;
}

/** Natural logarithms of the model's own probabilities: before temperature, penalties, bias and truncation (as in vLLM). */
export interface TokenLogprobs {
  /** Of the chosen token. */
  readonly logprob: number;
  /** 1 = most probable. */
  readonly rank: number;
  /** The most probable tokens, best first; as many as were asked for. */
  readonly top: readonly { readonly token: TokenId; readonly logprob: number }[];
}

export const blockAt = (table: BlockTable, index: number): BlockId => table.ids[index] as BlockId;
