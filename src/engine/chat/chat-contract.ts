import type { TextPart } from '../../tools/template-messages.ts';
import type { Tool, ToolCall } from '../../tools/tool.ts';
import type { GenerateRequest, OutputDelta } from '../contract.ts';
import type { AnswerDelta, AnswerMessage, ChatFinishReason } from './chat-answer.ts';
import type { ChosenFormats } from './conversation.ts';

export type { TextPart } from '../../tools/template-messages.ts';
export type { Tool, ToolCall } from '../../tools/tool.ts';
export type { AnswerMessage, ChatFinishReason, ToolCallDelta } from './chat-answer.ts';

/** The fields that the engine adds to an answer can be sent back: `{ role: 'assistant', ...message }`. */
export interface ChatMessage {
  readonly role: string;
  readonly content: string | readonly TextPart[];
  /** Calls of an earlier answer. */
  readonly toolCalls?: readonly ToolCall[];
  /** In a message of role `tool`: the id of the call that it answers. */
  readonly toolCallId?: string;
  /** The thoughts of an earlier answer, which some templates show to the model. */
  readonly reasoning?: string;
  readonly [extra: string]: unknown;
}

/** What `chat` and the offline `LLM` need to know of a conversation, besides its messages. */
export interface ChatSettings extends ChosenFormats {
  /** Functions that the model may call. */
  readonly tools?: readonly Tool[];
  /**
   * `none`: the model sees the tools, and cannot call them. Default `auto`: the model decides. `required`: the answer consists of calls
   * that match the tools' schemas; `{ name }`: of one call of this tool.
   */
  readonly toolChoice?: 'auto' | 'none' | 'required' | { readonly name: string };
  /** False: calls after the first are left out of the answer. Default true. */
  readonly parallelToolCalls?: boolean;
  /** Whether the template adds the start of the assistant's turn at the end. Default true. */
  readonly addGenerationPrompt?: boolean;
  /** The answer goes on where the final message ends, instead of beginning a turn. Default false. */
  readonly continueFinalMessage?: boolean;
  /** Further inputs of the template (`enable_thinking`, ...). */
  readonly variables?: Readonly<Record<string, unknown>>;
}

/**
 * A conversation to answer: its messages, its settings, and what `generate` takes beside a prompt.
 *
 * ```ts
 * const request: ChatRequest = {
 *   messages: [{ role: 'user', content: 'Name three primes.' }],
 *   params: { temperature: 0 },
 * };
 * for await (const { content, finish } of engine.chat(request)) {
 *   process.stdout.write(content);
 *   if (finish !== undefined) console.log(finish.reason, finish.message);
 * }
 * ```
 */
export interface ChatRequest extends ChatSettings, Omit<GenerateRequest, 'prompt' | 'parseSpecial' | 'addSpecial'> {
  readonly messages: readonly ChatMessage[];
}

/** What one step added to an answer: an `OutputDelta` whose text is divided into content, reasoning and calls. */
export interface ChatDelta extends AnswerDelta, Omit<OutputDelta, 'text' | 'controls' | 'finish'> {
  /** Set on the last delta of this answer. */
  readonly finish?: ChatFinish;
}

/** How an answer ended, with the whole answer and the statistics of its request. */
export interface ChatFinish extends Omit<NonNullable<OutputDelta['finish']>, 'reason'> {
  readonly reason: ChatFinishReason;
  /** The whole answer. */
  readonly message: AnswerMessage;
}
