import type { FinishReason } from '../../core/request.ts';
import { AnswerReader, type AnswerText } from '../../tools/answer-reader.ts';
import type { AnswerFormat } from '../../tools/formats.ts';
import type { AnswerPart, ToolCall } from '../../tools/tool.ts';
import { callId } from './call-id.ts';

export interface ChatAnswerOptions {
  readonly format: AnswerFormat;
  /** The rendered conversation. */
  readonly prompt: string;
  /** False: calls after the first are left out. */
  readonly areParallel: boolean;
}

/** The text of one step, divided into its kinds. A kind without text is empty. */
export interface AnswerDelta {
  readonly content: string;
  /** The thoughts of a reasoning model. */
  readonly reasoning: string;
  readonly toolCalls: readonly ToolCallDelta[];
}

/** The first delta of a call has its id and name; each has the next piece of the arguments. */
export interface ToolCallDelta {
  /** The number of the call in its answer, from 0. */
  readonly index: number;
  readonly id?: string;
  readonly name?: string;
  readonly arguments: string;
}

/** A complete answer. */
export interface AnswerMessage {
  readonly content: string;
  readonly reasoning: string;
  readonly toolCalls: readonly ToolCall[];
}

/** `tool_calls`: a complete answer with calls, which waits for their results. */
export type ChatFinishReason = FinishReason | 'tool_calls';

/** One choice of a chat: turns its text into content, reasoning and calls. */
export class ChatAnswer {
  readonly #options: ChatAnswerOptions;
  readonly #reader: AnswerReader;
  readonly #calls: { readonly id: string; readonly name: string; arguments: string }[] = [];
  #content = '';
  #reasoning = '';

  constructor(options: ChatAnswerOptions) {
    this.#options = options;
    this.#reader = new AnswerReader(options.format, options.prompt);
  }

  /** What the next delta of the engine adds to the message. */
  add(delta: AnswerText): AnswerDelta {
    let content = '';
    let reasoning = '';
    const calls = new Map<number, ToolCallDelta>();
    for (const part of this.#reader.add(delta)) {
      if (part.kind === 'content') content += part.text;
      else if (part.kind === 'reasoning') reasoning += part.text;
      else if (this.#options.areParallel || part.index === 0)
        calls.set(part.index, this.#addCall(part, calls.get(part.index)));
    }
    this.#content += content;
    this.#reasoning += reasoning;
    return { content, reasoning, toolCalls: [...calls.values()] };
  }

  /** The whole message, after the last delta. */
  message(): AnswerMessage {
    return {
      content: this.#content,
      reasoning: this.#reasoning,
      toolCalls: this.#calls.map((call) => ({ ...call })),
    };
  }

  /** The finish reason of the choice; undefined if it has not ended. */
  finishReason<Reason extends FinishReason>(
    finish: { readonly reason: Reason } | undefined,
  ): Reason | 'tool_calls' | undefined {
    return finish?.reason === 'stop' && this.#calls.length > 0 ? 'tool_calls' : finish?.reason;
  }

  #addCall(part: AnswerPart & { kind: 'call' | 'arguments' }, before: ToolCallDelta | undefined): ToolCallDelta {
    if (part.kind === 'call') {
      const { format, prompt } = this.#options;
      const isUsed = (id: string) => prompt.includes(id) || this.#calls.some((call) => call.id === id);
      const id = callId(format, part.id, isUsed);
      this.#calls.push({ id, name: part.name, arguments: '' });
      return { index: part.index, id, name: part.name, arguments: '' };
    }
    this.#calls[part.index]!.arguments += part.text;
    return { ...(before ?? { index: part.index }), arguments: (before?.arguments ?? '') + part.text };
  }
}
