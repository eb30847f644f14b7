import { JsonLimitError, readExactJson, writeExactJson } from '../base/exact-json.ts';
import { invalidParameter } from '../core/errors.ts';
import type { Tool, ToolCall } from './tool.ts';
import { type CallWriter, writeCalls } from './write-calls.ts';

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

export interface TemplateInput {
  readonly messages: readonly TemplateInputMessage[];
  /** The template's variable `tools`. */
  readonly tools?: readonly Tool[];
}

interface TemplateInputMessage {
  readonly role: string;
  readonly content: string | readonly TextPart[];
  readonly [extra: string]: unknown;
}

const asSent = ({ parts, ...message }: ToolMessage): TemplateInputMessage =>
  parts === undefined ? message : { ...message, content: parts };

/**
 * Messages and tools as templates of Hugging Face expect them: the arguments of calls are objects. Their numbers keep all digits
 * (`exact-json.ts`).
 */
export function forTemplate(messages: readonly ToolMessage[], tools: readonly Tool[]): TemplateInput {
  return {
    messages: messages.map(({ toolCalls = [], ...message }, i) =>
      toolCalls.length === 0
        ? asSent(message)
        : {
            ...asSent(message),
            tool_calls: parsedCalls(toolCalls, i).map(({ id, ...called }) => ({
              id,
              type: 'function',
              function: called,
            })),
          },
    ),
    ...(tools.length === 0 ? {} : { tools }),
  };
}

/** The same for a template that shows tools but no calls: calls are texts, as the model writes them. */
export function withWrittenCalls(
  messages: readonly ToolMessage[],
  tools: readonly Tool[],
  format: CallWriter,
): TemplateInput {
  return {
    messages: messages.map(({ toolCalls = [], ...message }, i) => {
      const written = writeCalls(format, parsedCalls(toolCalls, i));
      return asSent(written === '' ? message : withMore(message, written));
    }),
    ...(tools.length === 0 ? {} : { tools }),
  };
}

/** Where tools are described: at the end of the system message, or at the beginning of the first message of the user. */
export type ToolPlace = 'system' | 'user';

/**
 * Messages for a template that knows nothing of tools: the tools are described in a message, in the words of Hermes,
 * which many models have seen. Calls and their results are texts.
 */
export function asPlainMessages(
  messages: readonly ToolMessage[],
  tools: readonly Tool[],
  where: ToolPlace = 'system',
): TemplateInput {
  const plain = joinResults(messages.map(plainMessage));
  if (tools.length === 0) return { messages: plain.map(asSent) };
  const place = where === 'system' ? 0 : plain.findIndex(({ role }) => role === 'user');
  const at = plain[place];
  const isThere = at !== undefined && at.role === where;
  const shown = isThere ? plain : [{ role: where, content: '' }, ...plain];
  const index = isThere ? place : 0;
  const texts =
    where === 'system' ? [shown[index]!.content, describeTools(tools)] : [describeTools(tools), shown[index]!.content];
  const { parts: _, ...message } = shown[index]!;
  const described = { ...message, content: texts.filter((text) => text !== '').join('\n\n') };
  return { messages: shown.map((one, i) => asSent(i === index ? described : one)) };
}

function plainMessage({ toolCalls = [], tool_call_id: _, ...message }: ToolMessage, i: number): ToolMessage {
  if (message.role === 'tool') {
    return { role: 'user', content: `<tool_response>\n${message.content}\n</tool_response>` };
  }
  const calls = writeCalls('hermes', parsedCalls(toolCalls, i));
  return calls === '' ? message : withMore(message, message.content === '' ? calls : `\n${calls}`);
}

/** Templates may require that users and assistants take turns. */
function joinResults(messages: readonly ToolMessage[]): ToolMessage[] {
  const joined: ToolMessage[] = [];
  for (const message of messages) {
    const last = joined.at(-1);
    if (last?.role === 'user' && message.role === 'user' && message.content.startsWith('<tool_response>')) {
      joined[joined.length - 1] = withMore(last, `\n${message.content}`);
    } else joined.push(message);
  }
  return joined;
}

/** The begin of the tools' description: a prompt without it does not show them. */
export const toolIntroduction = 'You may call functions to answer.';

function describeTools(tools: readonly Tool[]): string {
  const lines = tools.map((tool) => writeExactJson(tool)).join('\n');
  return `${toolIntroduction} They are described in <tools></tools>, each with a JSON schema of its parameters:
<tools>
${lines}
</tools>
For each call write a JSON object with the name of the function and its arguments in <tool_call></tool_call>:
<tool_call>
{"name": <name>, "arguments": <object>}
</tool_call>`;
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
