import type { JsonObject } from '../../../base/json.ts';
import type { OutputItem } from './response-types.ts';
import { customArguments, shownName } from './tool-names.ts';

/** One item of a conversation, from the input of a request or from the output of a response. Calls have the names that the model sees. */
export type ConversationItem =
  | ({ readonly kind: 'message'; readonly role: string } & ItemText)
  | { readonly kind: 'reasoning'; readonly text: string }
  | { readonly kind: 'call'; readonly callId: string; readonly name: string; readonly arguments: string }
  | ({ readonly kind: 'result'; readonly callId: string } & ItemText);

export interface ItemText {
  /** Parts are joined by newlines. */
  readonly text: string;
  /** If there is more than one: for templates that read parts. */
  readonly parts?: readonly string[];
}

const contentOf = ({ text, parts }: ItemText): JsonObject['content'] =>
  parts === undefined ? text : parts.map((part) => ({ type: 'text', text: part }));

/** An output item as input of a later request. */
export function fromOutput(item: OutputItem): ConversationItem {
  if (item.type === 'function_call' || item.type === 'custom_tool_call') {
    const text = item.type === 'function_call' ? item.arguments : customArguments(item.input);
    return { kind: 'call', callId: item.call_id, name: shownName(item.name, item.namespace), arguments: text };
  }
  const text = item.content.map((part) => part.text).join('');
  return item.type === 'reasoning' ? { kind: 'reasoning', text } : { kind: 'message', role: item.role, text };
}

interface OpenAnswer {
  content?: JsonObject['content'];
  reasoning?: string;
  calls?: JsonObject[];
}

/**
 * The messages of a chat request with the same conversation. The items of one answer become one message, because templates
 * write its reasoning, its content and its calls together.
 */
export function asMessages(items: readonly ConversationItem[], instructions: string | undefined): JsonObject[] {
  const messages: JsonObject[] = instructions === undefined ? [] : [{ role: 'system', content: instructions }];
  let answer: OpenAnswer = {};
  const endAnswer = (): void => {
    if (isBegun(answer)) messages.push(messageOf(answer));
    answer = {};
  };
  for (const item of items) {
    if (item.kind === 'reasoning') {
      if (isBegun(answer)) endAnswer();
      answer.reasoning = (answer.reasoning ?? '') + item.text;
    } else if (item.kind === 'call') {
      const called = { name: item.name, arguments: item.arguments };
      answer.calls ??= [];
      answer.calls.push({ id: item.callId, type: 'function', function: called });
    } else if (item.kind === 'result') {
      endAnswer();
      messages.push({ role: 'tool', tool_call_id: item.callId, content: contentOf(item) });
    } else if (item.role === 'assistant') {
      if (answer.content !== undefined) endAnswer();
      answer.content = contentOf(item);
    } else {
      endAnswer();
      messages.push({ role: item.role, content: contentOf(item) });
    }
  }
  endAnswer();
  return messages;
}

/** Reasoning alone is nothing that a template could show. */
const isBegun = ({ content, calls }: OpenAnswer): boolean => content !== undefined || calls !== undefined;

const messageOf = ({ content = '', reasoning, calls }: OpenAnswer): JsonObject => ({
  role: 'assistant',
  content,
  ...(reasoning === undefined ? {} : { reasoning_content: reasoning }),
  ...(calls === undefined ? {} : { tool_calls: calls }),
});
