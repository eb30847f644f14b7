import { writeExactJson } from '../base/exact-json.ts';
import type { TemplateMessage } from '../tokenizer/chat-template.ts';
import { textOf } from './message-texts.ts';

/** Describes tools at the end of the system message, in the words of Hermes, which many models have seen. */
export function describeTools(messages: readonly TemplateMessage[], tools: readonly unknown[]): TemplateMessage[] {
  const [first, ...rest] = messages;
  const description = descriptionOf(tools);
  if (first?.role !== 'system') return [{ role: 'system', content: description }, ...messages];
  const text = textOf(first);
  return [{ ...first, content: text === '' ? description : `${text}\n\n${description}` }, ...rest];
}

function descriptionOf(tools: readonly unknown[]): string {
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
