/** The answers of Anthropic's Messages API. Requests have no types here: `read-message-request.ts` checks them. */
import type { RawJson } from '../json-pieces.ts';

export interface TextBlock {
  readonly type: 'text';
  readonly text: string;
}

/** The thoughts of a reasoning model. No provider has signed them. */
export interface ThinkingBlock {
  readonly type: 'thinking';
  readonly thinking: string;
  readonly signature: '';
}

export interface ToolUseBlock {
  readonly type: 'tool_use';
  readonly id: string;
  readonly name: string;
  /** The arguments of the call, with all digits of numbers. In a stream it is empty, and the deltas have the JSON. */
  readonly input: RawJson<object>;
}

export type MessageBlock = TextBlock | ThinkingBlock | ToolUseBlock;

/** `input_tokens` are the tokens of the prompt that were computed: those of the cache are not among them. */
export interface MessageUsage {
  readonly input_tokens: number;
  readonly cache_creation_input_tokens: 0;
  readonly cache_read_input_tokens: number;
  readonly output_tokens: number;
}

export type StopReason = 'end_turn' | 'max_tokens' | 'stop_sequence' | 'tool_use';

export interface Message {
  readonly id: string;
  readonly type: 'message';
  readonly role: 'assistant';
  readonly model: string;
  readonly content: readonly MessageBlock[];
  /** Null in the first event of a stream. */
  readonly stop_reason: StopReason | null;
  readonly stop_sequence: string | null;
  readonly usage: MessageUsage;
}

export type BlockDelta =
  | { readonly type: 'text_delta'; readonly text: string }
  | { readonly type: 'thinking_delta'; readonly thinking: string }
  | { readonly type: 'input_json_delta'; readonly partial_json: string };

/** An event of a stream. Its type is also the type of the server-sent event. */
export type MessageEvent =
  | { readonly type: 'message_start'; readonly message: Message }
  | { readonly type: 'content_block_start'; readonly index: number; readonly content_block: MessageBlock }
  | { readonly type: 'content_block_delta'; readonly index: number; readonly delta: BlockDelta }
  | { readonly type: 'content_block_stop'; readonly index: number }
  | {
      readonly type: 'message_delta';
      readonly delta: Pick<Message, 'stop_reason' | 'stop_sequence'>;
      readonly usage: MessageUsage;
    }
  | { readonly type: 'message_stop' }
  | MessageError;

export interface MessageError {
  readonly type: 'error';
  readonly error: { readonly type: string; readonly message: string };
}
