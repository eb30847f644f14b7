import type { JsonObject } from '../../../base/json.ts';
import type { WholeReason } from '../../../engine/early-end.ts';
import type { JsonList } from '../../http/json-pieces.ts';

/**
 * The responses of OpenAI's API, with the extra fields of vLLM (`stop_reason`, `token_ids`, `kv_transfer_params`,
 * `max_model_len`) and extra fields about KV outside the engine. Requests have no types here: they are `unknown`, and
 * `parse.ts` checks them.
 */
export interface Usage {
  readonly prompt_tokens: number;
  readonly completion_tokens: number;
  readonly total_tokens: number;
  readonly prompt_tokens_details: PromptTokensDetails;
  /** Present if drafts were verified for the request. */
  readonly completion_tokens_details?: CompletionTokensDetails;
}

export interface CompletionTokensDetails {
  /** Draft tokens that became output tokens. */
  readonly accepted_prediction_tokens: number;
  /** Draft tokens that were computed and did not become output tokens. */
  readonly rejected_prediction_tokens: number;
}

export interface PromptTokensDetails {
  /** Tokens whose KV was reused, from the pool or from a load. */
  readonly cached_tokens: number;
  /** Tokens that a connector promised, including those of failed loads. */
  readonly external_tokens?: number;
  /** Tokens computed again, because their load failed or the request was preempted. */
  readonly recomputed_tokens?: number;
  /** Blocks that a connector promised and whose load failed. */
  readonly failed_loads?: number;
  /** Tokens whose KV was loaded, by tier: host memory, disk, ... */
  readonly loaded_tokens?: Readonly<Record<string, number>>;
}

interface KvTransferParamsField {
  /** The connector's answer for the first choice that has one. */
  readonly kv_transfer_params?: JsonObject;
}

/** If usage is requested, all chunks of a stream but the last have `usage: null`; else no chunk has the field. */
interface ChunkUsage {
  readonly usage?: Usage | null;
}

interface ResponseHead<Kind extends string> {
  readonly id: string;
  readonly object: Kind;
  /** Seconds since 1970. */
  readonly created: number;
  readonly model: string;
}

export interface CompletionLogprobs {
  readonly tokens: JsonList<string>;
  /** Null for the first token of an echoed prompt. */
  readonly token_logprobs: JsonList<number | null>;
  readonly top_logprobs: JsonList<Record<string, number> | null>;
  /** The position of each token in the text, in UTF-16 units. */
  readonly text_offset: JsonList<number>;
}

/** The logprobs of a prompt's token and of the most probable tokens, by token id; null for the first token (vLLM). */
export type PromptTokenLogprobs = Record<
  number,
  { readonly logprob: number; readonly rank: number; readonly decoded_token: string }
> | null;

export interface PromptLogprobsField {
  readonly prompt_logprobs?: JsonList<PromptTokenLogprobs>;
}

export interface CompletionChoice extends PromptLogprobsField {
  readonly index: number;
  readonly text: string;
  readonly logprobs: CompletionLogprobs | null;
  readonly finish_reason: WholeReason | null;
  readonly stop_reason: string | number | null;
  readonly token_ids?: JsonList<number>;
  readonly prompt_token_ids?: JsonList<number>;
}

export interface CompletionBody extends ResponseHead<'text_completion'>, KvTransferParamsField {
  readonly choices: readonly CompletionChoice[];
  readonly usage: Usage;
}

/** A chunk of a streamed completion. */
export interface CompletionChunk extends ResponseHead<'text_completion'>, ChunkUsage, KvTransferParamsField {
  readonly choices: readonly CompletionChoice[];
}

export interface ChatTokenLogprob {
  readonly token: string;
  readonly logprob: number;
  /** The token's UTF-8 bytes, because a token can be only a part of a character. */
  readonly bytes: readonly number[];
}

export interface ChatLogprobs {
  readonly content: JsonList<ChatTokenLogprob & { readonly top_logprobs: readonly ChatTokenLogprob[] }>;
}

interface ChatChoiceEnd {
  readonly index: number;
  readonly logprobs: ChatLogprobs | null;
  readonly finish_reason: WholeReason | 'tool_calls' | null;
  readonly stop_reason?: string | number | null;
  readonly token_ids?: JsonList<number>;
}

export interface ChatToolCall {
  readonly id: string;
  readonly type: 'function';
  /** `arguments`: JSON, as the model wrote it. */
  readonly function: { readonly name: string; readonly arguments: string };
}

/** The first delta of a call has its id and name; each has the next piece of the arguments. */
export interface ChatToolCallDelta {
  readonly index: number;
  readonly id?: string;
  readonly type?: 'function';
  readonly function: { readonly name?: string; readonly arguments: string };
}

export interface ChatDelta {
  readonly role?: 'assistant';
  readonly content?: string;
  /** The thoughts of a reasoning model (vLLM, DeepSeek). */
  readonly reasoning_content?: string;
  readonly tool_calls?: readonly ChatToolCallDelta[];
}

export interface ChatChoice extends ChatChoiceEnd {
  readonly message: {
    readonly role: 'assistant';
    /** Null if the answer has calls only. */
    readonly content: string | null;
    readonly refusal: null;
    /** Citations of OpenAI's own tools: none. */
    readonly annotations: readonly [];
    readonly reasoning_content?: string;
    readonly tool_calls?: readonly ChatToolCall[];
  };
}

export interface ChatBody extends ResponseHead<'chat.completion'>, KvTransferParamsField, PromptLogprobsField {
  readonly choices: readonly ChatChoice[];
  readonly usage: Usage;
  readonly prompt_token_ids?: JsonList<number>;
}

export interface ChatChunkChoice extends ChatChoiceEnd {
  readonly delta: ChatDelta;
}

export interface ChatChunk extends ResponseHead<'chat.completion.chunk'>, ChunkUsage, KvTransferParamsField {
  readonly choices: readonly ChatChunkChoice[];
  readonly prompt_token_ids?: JsonList<number>;
}

export interface ModelCard {
  readonly id: string;
  readonly object: 'model';
  readonly created: number;
  readonly owned_by: string;
  readonly root: string;
  /** Of a LoRA adapter: the name of the model. */
  readonly parent: string | null;
  readonly max_model_len: number;
  /** What the model's file says of itself (`general.description`). */
  readonly description?: string;
}
