import { randomBytes } from 'node:crypto';
import type { OutputDelta } from '../engine/contract.ts';
import { type AnswerFormat, answerParser } from '../tools/formats.ts';
import type { AnswerParser, AnswerPart } from '../tools/tool.ts';
import type { ChatDelta, ChatToolCall, ChatToolCallDelta } from './openai-types.ts';

export interface ChatAnswerOptions {
  readonly format: AnswerFormat;
  /** The rendered conversation. */
  readonly prompt: string;
  /** False: calls after the first are left out. */
  readonly areParallel: boolean;
}

/** One choice of a chat: turns its text into content, reasoning and calls. */
export class ChatAnswer {
  readonly #options: ChatAnswerOptions;
  readonly #parser: AnswerParser | undefined;
  readonly #calls: { readonly id: string; readonly name: string; arguments: string }[] = [];
  #content = '';
  #reasoning = '';

  constructor(options: ChatAnswerOptions) {
    this.#options = options;
    this.#parser = answerParser(options.format, options.prompt);
  }

  /** What the next delta of the engine adds to the message. */
  add({ text, finish }: Pick<OutputDelta, 'text' | 'finish'>): ChatDelta {
    const parts = this.#parser === undefined ? contentOf(text) : this.#parser.add(text);
    if (finish !== undefined && this.#parser !== undefined) parts.push(...this.#parser.end());
    let content = '';
    let reasoning = '';
    const calls = new Map<number, ChatToolCallDelta>();
    for (const part of parts) {
      if (part.kind === 'content') content += part.text;
      else if (part.kind === 'reasoning') reasoning += part.text;
      else if (this.#options.areParallel || part.index === 0)
        calls.set(part.index, this.#addCall(part, calls.get(part.index)));
    }
    this.#content += content;
    this.#reasoning += reasoning;
    return {
      ...(content === '' ? {} : { content }),
      ...(reasoning === '' ? {} : { reasoning_content: reasoning }),
      ...(calls.size === 0 ? {} : { tool_calls: [...calls.values()] }),
    };
  }

  /** The whole message, after the last delta. */
  message() {
    const calls: ChatToolCall[] = this.#calls.map(({ id, name, arguments: text }) => ({
      id,
      type: 'function',
      function: { name, arguments: text },
    }));
    return {
      role: 'assistant',
      content: this.#content === '' && calls.length > 0 ? null : this.#content,
      refusal: null,
      ...(this.#reasoning === '' ? {} : { reasoning_content: this.#reasoning }),
      ...(calls.length === 0 ? {} : { tool_calls: calls }),
    } as const;
  }

  /** The finish reason of the choice: a complete answer with calls waits for their results. */
  finishReason(finish: OutputDelta['finish']): string | null {
    if (finish === undefined) return null;
    return finish.reason === 'stop' && this.#calls.length > 0 ? 'tool_calls' : finish.reason;
  }

  #addCall(
    part: AnswerPart & { kind: 'call' | 'arguments' },
    before: ChatToolCallDelta | undefined,
  ): ChatToolCallDelta {
    if (part.kind === 'call') {
      const id = this.#newId();
      this.#calls.push({ id, name: part.name, arguments: '' });
      return { index: part.index, id, type: 'function', function: { name: part.name, arguments: '' } };
    }
    this.#calls[part.index]!.arguments += part.text;
    const text = (before?.function.arguments ?? '') + part.text;
    return { ...(before ?? { index: part.index }), function: { ...before?.function, arguments: text } };
  }

  /** Mistral's templates take ids of nine letters and digits only. */
  #newId(): string {
    const digits = randomBytes(12).toString('hex');
    return this.#options.format.tools === 'mistral' ? digits.slice(0, 9) : `call_${digits}`;
  }
}

const contentOf = (text: string): AnswerPart[] => (text === '' ? [] : [{ kind: 'content', text }]);
