import { JsonLimitError, readExactJson } from '../base/exact-json.ts';
import { invalidParameter } from '../core/errors.ts';
import type { ToolCall } from './tool.ts';

/** A part of the content of a message. */
export type TextPart = { readonly type: 'text'; readonly text: string };

/** A message of a chat, with the calls of an answer, or the result of a call. */
export interface ToolMessage {
  readonly role: string;
  /** Parts are joined by newlines. */
  readonly content: string;
  /** The content as it was sent, if it was sent in parts: for templates that read parts. */
  readonly parts?: readonly TextPart[];
  readonly toolCalls?: readonly ToolCall[];
  readonly [extra: string]: unknown;
}

/** The content that a list of parts has for readers of text. */
export const joinedParts = (parts: readonly TextPart[]): string => parts.map(({ text }) => text).join('\n');

/** Content as a text. */
export const contentText = (content: string | readonly TextPart[]): string =>
  typeof content === 'string' ? content : joinedParts(content);

/** A message with more text at the end of its content. */
export function withMore(message: ToolMessage, text: string): ToolMessage {
  const { content, parts } = message;
  const last = parts?.at(-1);
  if (parts === undefined || last === undefined) return { ...message, content: content + text };
  return { ...message, content: content + text, parts: [...parts.slice(0, -1), { ...last, text: last.text + text }] };
}

interface TemplateInputMessage {
  readonly role: string;
  readonly content: string | readonly TextPart[];
  readonly [extra: string]: unknown;
}

const asSent = ({ parts, ...message }: ToolMessage): TemplateInputMessage =>
  parts === undefined ? message : { ...message, content: parts };

/** Messages as templates of Hugging Face expect them: the arguments of calls are objects. Their numbers keep all digits (`exact-json.ts`). */
export function forTemplate(messages: readonly ToolMessage[]): TemplateInputMessage[] {
  return messages.map(({ toolCalls = [], ...message }, i) => {
    if (toolCalls.length === 0) return asSent(message);
    const calls = parsedCalls(toolCalls, i).map(({ id, ...called }) => ({ id, type: 'function', function: called }));
    return { ...asSent(message), tool_calls: calls };
  });
}

interface ParsedCall extends Omit<ToolCall, 'arguments'> {
  readonly arguments: unknown;
}

/**
 * Clients send an empty text for a call without arguments. Text that is not JSON stays a text.
 * @throws KvasirError `invalidParameter` if reading it would take too long.
 */
function parsedCalls(calls: readonly ToolCall[], message: number): ParsedCall[] {
  return calls.map((call, i) => {
    const { arguments: text } = call;
    if (text.trim() === '') return { ...call, arguments: {} };
    try {
      return { ...call, arguments: readExactJson(text) };
    } catch (error) {
      if (!(error instanceof JsonLimitError)) return call;
      const parameter = `messages[${message}].toolCalls[${i}].arguments`;
      const { limit, what } = error;
      throw invalidParameter({ parameter, expected: `JSON with at most ${limit} ${what}`, actual: 'more' }, error);
    }
  });
}
