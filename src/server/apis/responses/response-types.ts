import type { JsonObject } from '../../../base/json.ts';
import type { ChatLogprobs } from '../openai/types.ts';

/** The objects and events of OpenAI's Responses API, as far as Kvasir sends them. Requests are `unknown`: see `parse-response.ts`. */
export type ResponseStatus = 'queued' | 'in_progress' | 'completed' | 'incomplete' | 'failed' | 'cancelled';
export type ItemStatus = 'in_progress' | 'completed' | 'incomplete';
export type TokenLogprobList = ChatLogprobs['content'];

export interface OutputTextPart {
  readonly type: 'output_text';
  readonly text: string;
  readonly annotations: readonly [];
  readonly logprobs: TokenLogprobList;
}

export interface ReasoningTextPart {
  readonly type: 'reasoning_text';
  readonly text: string;
}

export interface MessageItem {
  readonly type: 'message';
  readonly id: string;
  readonly status: ItemStatus;
  readonly role: 'assistant';
  readonly content: readonly OutputTextPart[];
}

export interface ReasoningItem {
  readonly type: 'reasoning';
  readonly id: string;
  readonly status: ItemStatus;
  readonly summary: readonly [];
  readonly content: readonly ReasoningTextPart[];
}

export interface FunctionCallItem {
  readonly type: 'function_call';
  readonly id: string;
  readonly status: ItemStatus;
  readonly call_id: string;
  readonly name: string;
  /** The group of the tool. */
  readonly namespace?: string;
  /** JSON, as the model wrote it. */
  readonly arguments: string;
}

/** A call of a tool whose input is a text. */
export interface CustomCallItem {
  readonly type: 'custom_tool_call';
  readonly id: string;
  readonly status: ItemStatus;
  readonly call_id: string;
  readonly name: string;
  readonly namespace?: string;
  readonly input: string;
}

export type OutputItem = MessageItem | ReasoningItem | FunctionCallItem | CustomCallItem;

export interface ResponseUsage {
  readonly input_tokens: number;
  readonly input_tokens_details: { readonly cached_tokens: number };
  readonly output_tokens: number;
  readonly output_tokens_details: { readonly reasoning_tokens: number };
  readonly total_tokens: number;
}

/** The fields of a response that repeat its request. */
export interface RequestEcho {
  readonly background: boolean;
  readonly frequency_penalty: number;
  readonly instructions: string | null;
  readonly max_output_tokens: number | null;
  readonly max_tool_calls: number | null;
  readonly metadata: Readonly<Record<string, string>>;
  readonly parallel_tool_calls: boolean;
  readonly presence_penalty: number;
  readonly previous_response_id: string | null;
  readonly prompt_cache_key: string | null;
  readonly reasoning: { readonly effort: string | null; readonly summary: string | null };
  readonly safety_identifier: string | null;
  readonly service_tier: 'default';
  readonly store: boolean;
  readonly temperature: number;
  readonly text: JsonObject;
  readonly tool_choice: unknown;
  readonly tools: readonly JsonObject[];
  readonly top_logprobs: number;
  readonly top_p: number;
  readonly truncation: 'auto' | 'disabled';
  readonly user: string | null;
}

export interface ResponseBody extends RequestEcho {
  readonly id: string;
  readonly object: 'response';
  /** Seconds since 1970, as `completed_at`. */
  readonly created_at: number;
  readonly completed_at: number | null;
  readonly model: string;
  readonly status: ResponseStatus;
  readonly error: { readonly code: string; readonly message: string } | null;
  readonly incomplete_details: { readonly reason: 'max_output_tokens' } | null;
  readonly output: readonly OutputItem[];
  /** Null until the response ends. */
  readonly usage: ResponseUsage | null;
  /** The connector's answer (vLLM). */
  readonly kv_transfer_params?: JsonObject;
}

type LifeCycle = 'created' | 'queued' | 'in_progress' | 'completed' | 'incomplete' | 'failed';

/** The position of an event in the output. */
interface ItemPlace {
  readonly item_id: string;
  readonly output_index: number;
}
interface PartPlace extends ItemPlace {
  readonly content_index: number;
}

/** An event of a stream without its number. */
export type UnnumberedEvent =
  | { readonly type: `response.${LifeCycle}`; readonly response: ResponseBody }
  | {
      readonly type: 'response.output_item.added' | 'response.output_item.done';
      readonly output_index: number;
      readonly item: OutputItem;
    }
  | (PartPlace & {
      readonly type: 'response.content_part.added' | 'response.content_part.done';
      readonly part: OutputTextPart | ReasoningTextPart;
    })
  | (PartPlace & {
      readonly type: 'response.output_text.delta';
      readonly delta: string;
      readonly logprobs: TokenLogprobList;
    })
  | (PartPlace & {
      readonly type: 'response.output_text.done';
      readonly text: string;
      readonly logprobs: TokenLogprobList;
    })
  | (PartPlace & { readonly type: 'response.reasoning_text.delta'; readonly delta: string })
  | (PartPlace & { readonly type: 'response.reasoning_text.done'; readonly text: string })
  | (ItemPlace & { readonly type: 'response.function_call_arguments.delta'; readonly delta: string })
  | (ItemPlace & { readonly type: 'response.custom_tool_call_input.delta'; readonly delta: string })
  | (ItemPlace & { readonly type: 'response.custom_tool_call_input.done'; readonly input: string })
  | (ItemPlace & {
      readonly type: 'response.function_call_arguments.done';
      readonly name: string;
      readonly arguments: string;
    });

/** `sequence_number` counts the events of a stream from 0. */
export type ResponseEvent = UnnumberedEvent & { readonly sequence_number: number };
