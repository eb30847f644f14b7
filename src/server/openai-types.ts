import type { JsonObject } from '../base/json.ts';

/**
 * What goes over the wire, in OpenAI's words, with vLLM's extras (`stop_reason`, `token_ids`, `kv_transfer_params`,
 * `max_model_len`) and ours about KV from outside.
 * Requests have no types here: they come as `unknown`, and `openai-parse.ts` makes of them what the engine takes.
 */
export interface Usage {
  readonly prompt_tokens: number;
  readonly completion_tokens: number;
  readonly total_tokens: number;
  readonly prompt_tokens_details: PromptTokensDetails;
}

export interface PromptTokensDetails {
  /** Found in the pool or outside, and really used. */
  readonly cached_tokens: number;
  /** Promised by a connector, lost ones among them. */
  readonly external_tokens?: number;
  /** Computed again, because a connector had promised them or because the request was preempted. */
  readonly recomputed_tokens?: number;
  /** Blocks that a connector had promised and that did not arrive. */
  readonly failed_loads?: number;
}

interface KvTransferParamsField {
  /** What the connector says to the client about the first choice for which it says anything. */
  readonly kv_transfer_params?: JsonObject;
}

/** Of the chunks of a stream, all but the last carry `usage: null` when usage was asked for, and no field when not. */
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
  readonly tokens: string[];
  readonly token_logprobs: number[];
  readonly top_logprobs: Record<string, number>[];
  /** Where each token begins in the text, in UTF-16 units. */
  readonly text_offset: number[];
}

export interface CompletionChoice {
  readonly index: number;
  readonly text: string;
  readonly logprobs: CompletionLogprobs | null;
  readonly finish_reason: string | null;
  readonly stop_reason: string | number | null;
  readonly token_ids?: readonly number[];
  readonly prompt_token_ids?: readonly number[];
}

export interface CompletionBody extends ResponseHead<'text_completion'>, KvTransferParamsField {
  readonly choices: readonly CompletionChoice[];
  readonly usage: Usage;
}

/** A piece of a streamed completion. */
export interface CompletionChunk extends ResponseHead<'text_completion'>, ChunkUsage, KvTransferParamsField {
  readonly choices: readonly CompletionChoice[];
}

export interface ChatTokenLogprob {
  readonly token: string;
  readonly logprob: number;
  /** The token's UTF-8, because a token may hold only a part of a character. */
  readonly bytes: readonly number[];
}

export interface ChatLogprobs {
  readonly content: readonly (ChatTokenLogprob & { readonly top_logprobs: readonly ChatTokenLogprob[] })[];
}

interface ChatChoiceEnd {
  readonly index: number;
  readonly logprobs: ChatLogprobs | null;
  readonly finish_reason: string | null;
  readonly stop_reason?: string | number | null;
  readonly token_ids?: readonly number[];
}

export interface ChatChoice extends ChatChoiceEnd {
  readonly message: { readonly role: 'assistant'; readonly content: string; readonly refusal: null };
}

export interface ChatBody extends ResponseHead<'chat.completion'>, KvTransferParamsField {
  readonly choices: readonly ChatChoice[];
  readonly usage: Usage;
  readonly prompt_token_ids?: readonly number[];
}

export interface ChatChunkChoice extends ChatChoiceEnd {
  readonly delta: { readonly role?: 'assistant'; readonly content?: string };
}

export interface ChatChunk extends ResponseHead<'chat.completion.chunk'>, ChunkUsage, KvTransferParamsField {
  readonly choices: readonly ChatChunkChoice[];
  readonly prompt_token_ids?: readonly number[];
}

export interface ModelCard {
  readonly id: string;
  readonly object: 'model';
  readonly created: number;
  readonly owned_by: string;
  readonly root: string;
  readonly parent: null;
  readonly max_model_len: number;
}
