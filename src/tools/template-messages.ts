import type { Tool, ToolCall } from './tool.ts';

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

/** Messages and tools as templates of Hugging Face expect them: the arguments of calls are objects. */
export function forTemplate(messages: readonly ToolMessage[], tools: readonly Tool[]): TemplateInput {
  return {
    messages: messages.map(({ toolCalls, ...message }) =>
      toolCalls === undefined || toolCalls.length === 0
        ? message
        : { ...message, tool_calls: toolCalls.map(asTemplateCall) },
    ),
    ...(tools.length === 0 ? {} : { tools }),
  };
}

function asTemplateCall({ id, name, arguments: text }: ToolCall) {
  return { id, type: 'function', function: { name, arguments: parsed(text) } };
}

/**
 * Messages for a template that knows nothing of tools: the tools are described in the system message, in the words of Hermes,
 * which many models have seen. Calls and their results are texts.
 */
export function asPlainMessages(messages: readonly ToolMessage[], tools: readonly Tool[]): TemplateInput {
  const plain = messages.map(({ toolCalls = [], tool_call_id: _, ...message }) => {
    if (message.role === 'tool') {
      return { role: 'user', content: `<tool_response>\n${message.content}\n</tool_response>` };
    }
    const calls = toolCalls.map(
      ({ name, arguments: text }) => `<tool_call>\n${JSON.stringify({ name, arguments: parsed(text) })}\n</tool_call>`,
    );
    return { ...message, content: [message.content, ...calls].filter((text) => text !== '').join('\n') };
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
  const lines = tools.map((tool) => JSON.stringify(tool)).join('\n');
  return `You may call functions to answer. They are described in <tools></tools>, each with a JSON schema of its parameters:
<tools>
${lines}
</tools>
For each call write a JSON object with the name of the function and its arguments in <tool_call></tool_call>:
<tool_call>
{"name": <name>, "arguments": <object>}
</tool_call>`;
}

/** Clients send an empty text for a call without arguments. Text that is no JSON stays a text. */
function parsed(text: string): unknown {
  if (text.trim() === '') return {};
  try {
    return JSON.parse(text) as unknown;
  } catch {
    return text;
  }
}
