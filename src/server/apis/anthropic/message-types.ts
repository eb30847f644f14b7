/** The answers of Anthropic's Messages API. Requests have no types here: `read-message-request.ts` checks them. */
import type { RawJson } from '../../http/json-pieces.ts';

export interface TextBlock {
  readonly type: 'text';
  readonly text: string;
  readonly citations: null;
}

/** The thoughts of a reasoning model. The signature is constant: clients leave out thoughts without one when they send an answer back. */
export interface ThinkingBlock {
  readonly type: 'thinking';
  readonly thinking: string;
  /** Empty when a block of a stream begins. */
  readonly signature: string;
}

export interface ToolUseBlock {
  readonly type: 'tool_use';
  readonly id: string;
  readonly name: string;
  /** The arguments of the call, with all digits of numbers. In a stream it is empty, and the deltas have the JSON. */
  readonly input: RawJson<object>;
  /** The model itself calls, not a program of it. */
  readonly caller: { readonly type: 'direct' };
}

export type MessageBlock = TextBlock | ThinkingBlock | ToolUseBlock;

/**
 * `input_tokens` are the tokens of the prompt that were computed: those of the cache are not among them. Fields that are null concern
 * what only Anthropic's servers have.
 */
export interface MessageUsage {
  readonly input_tokens: number;
  readonly cache_creation_input_tokens: 0;
  readonly cache_read_input_tokens: number;
  readonly output_tokens: number;
  readonly cache_creation: null;
  readonly inference_geo: null;
  readonly output_tokens_details: null;
  readonly server_tool_use: null;
  readonly service_tier: 'standard';
}

/** `model_context_window_exceeded`: the context was full before `max_tokens` was reached. */
export type StopReason = 'end_turn' | 'max_tokens' | 'stop_sequence' | 'tool_use' | 'model_context_window_exceeded';

export interface Message {
  readonly id: string;
  readonly type: 'message';
  readonly role: 'assistant';
  readonly model: string;
  readonly content: readonly MessageBlock[];
  /** Null in the first event of a stream. */
  readonly stop_reason: StopReason | null;
  readonly stop_sequence: string | null;
  /** Of refusals. */
  readonly stop_details: null;
  readonly container: null;
  readonly usage: MessageUsage;
}

/** How a message ends. */
export type MessageStop = Pick<Message, 'stop_reason' | 'stop_sequence' | 'stop_details' | 'container'>;

export type BlockDelta =
  | { readonly type: 'text_delta'; readonly text: string }
  | { readonly type: 'thinking_delta'; readonly thinking: string }
  /** The last of a block of thoughts. */
  | { readonly type: 'signature_delta'; readonly signature: string }
  | { readonly type: 'input_json_delta'; readonly partial_json: string };

/** An event of a stream. Its type is also the type of the server-sent event. */
export type MessageEvent =
  | { readonly type: 'message_start'; readonly message: Message }
  | { readonly type: 'content_block_start'; readonly index: number; readonly content_block: MessageBlock }
  | { readonly type: 'content_block_delta'; readonly index: number; readonly delta: BlockDelta }
  | { readonly type: 'content_block_stop'; readonly index: number }
  | {
      readonly type: 'message_delta';
      readonly delta: MessageStop;
      readonly usage: MessageUsage;
    }
  | { readonly type: 'message_stop' }
  | MessageError;

export interface MessageError {
  readonly type: 'error';
  readonly error: { readonly type: string; readonly message: string };
}
