import { JsonLimitError, readExactJson, writeExactJson } from '../base/exact-json.ts';
import { invalidParameter } from '../core/errors.ts';
import type { Tool, ToolCall } from './tool.ts';
import { type CallWriter, writeCalls } from './write-calls.ts';

/** A message of a chat, with the calls of an answer, or the result of a call. */
export interface ToolMessage {
  readonly role: string;
  readonly content: string;
  readonly toolCalls?: readonly ToolCall[];
  readonly [extra: string]: unknown;
}

export interface TemplateInput {
  readonly messages: readonly { readonly role: string; readonly content: string; readonly [extra: string]: unknown }[];
  /** The template's variable `tools`. */
  readonly tools?: readonly Tool[];
}

/**
 * Messages and tools as templates of Hugging Face expect them: the arguments of calls are objects. Their numbers keep all digits
 * (`exact-json.ts`).
 */
export function forTemplate(messages: readonly ToolMessage[], tools: readonly Tool[]): TemplateInput {
  return {
    messages: messages.map(({ toolCalls = [], ...message }, i) =>
      toolCalls.length === 0
        ? message
        : {
            ...message,
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
      return written === '' ? message : { ...message, content: message.content + written };
    }),
    ...(tools.length === 0 ? {} : { tools }),
  };
}

/**
 * Messages for a template that knows nothing of tools: the tools are described in the system message, in the words of Hermes,
 * which many models have seen. Calls and their results are texts.
 */
export function asPlainMessages(messages: readonly ToolMessage[], tools: readonly Tool[]): TemplateInput {
  const plain = messages.map(({ toolCalls = [], tool_call_id: _, ...message }, i) => {
    if (message.role === 'tool') {
      return { role: 'user', content: `<tool_response>\n${message.content}\n</tool_response>` };
    }
    const calls = writeCalls('hermes', parsedCalls(toolCalls, i));
    return { ...message, content: [message.content, calls].filter((text) => text !== '').join('\n') };
  });
  if (tools.length === 0) return { messages: joinResults(plain) };
  const [first] = plain;
  const system = first?.role === 'system' ? first.content : '';
  const rest = first?.role === 'system' ? plain.slice(1) : plain;
  const content = [system, describeTools(tools)].filter((text) => text !== '').join('\n\n');
  return { messages: [{ role: 'system', content }, ...joinResults(rest)] };
}

/** Templates may require that users and assistants take turns. */
function joinResults<M extends { readonly role: string; readonly content: string }>(messages: readonly M[]): M[] {
  const joined: M[] = [];
  for (const message of messages) {
    const last = joined.at(-1);
    if (last?.role === 'user' && message.role === 'user' && message.content.startsWith('<tool_response>')) {
      joined[joined.length - 1] = { ...last, content: `${last.content}\n${message.content}` };
    } else joined.push(message);
  }
  return joined;
}

function describeTools(tools: readonly Tool[]): string {
  const lines = tools.map((tool) => writeExactJson(tool)).join('\n');
  return `You may call functions to answer. They are described in <tools></tools>, each with a JSON schema of its parameters:
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
 * Clients send an empty text for a call without arguments. Text that is no JSON stays a text.
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
