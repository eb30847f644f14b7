import type { TemplateMessage } from '../tokenizer/chat-template.ts';

/** A call in the form of OpenAI's API, whose arguments are an object or a text. */
export interface TemplateCall {
  readonly id?: unknown;
  readonly type?: string;
  readonly function: { readonly name: string; readonly arguments?: unknown; readonly [extra: string]: unknown };
  readonly [extra: string]: unknown;
}

/** The content of a message as one text: parts are joined by newlines. */
export function textOf({ content }: TemplateMessage): string {
  if (typeof content === 'string') return content;
  return content?.map(({ text }) => text ?? '').join('\n') ?? '';
}

/** The texts of two messages as the text of one. It is not copied, so joining many takes time in proportion to their texts. */
export const joinTexts = (first: string, second: string): string =>
  first === '' ? second : second === '' ? first : `${first}\n\n${second}`;

/** The first message with the texts of both. */
export const withTextOf = (first: TemplateMessage, second: TemplateMessage): TemplateMessage => ({
  ...first,
  content: joinTexts(textOf(first), textOf(second)),
});

/** Nothing is an empty text, no arguments an empty object, and a number as an id a text: some templates fail on others. */
export function withoutGaps(message: TemplateMessage): TemplateMessage {
  const { tool_calls: given, ...rest } = message;
  const { content, tool_call_id: id } = message;
  const isEmpty = content === null || content === undefined || content.length === 0;
  const calls = callsOf(message).map((call) => ({
    ...call,
    ...(typeof call.id === 'number' ? { id: String(call.id) } : {}),
    function: { ...call.function, arguments: call.function.arguments ?? {} },
  }));
  return {
    ...rest,
    ...(isEmpty ? { content: '' } : {}),
    ...(typeof id === 'number' ? { tool_call_id: String(id) } : {}),
    ...(calls.length > 0 ? { tool_calls: calls } : {}),
    ...(message.role === 'assistant' || given === undefined ? {} : { tool_calls: given }),
  };
}

export function callsOf({ role, tool_calls: calls }: TemplateMessage): readonly TemplateCall[] {
  return role === 'assistant' && Array.isArray(calls) ? (calls as readonly TemplateCall[]) : [];
}
