import { describeValue } from '../core/sampling-read.ts';
import type { ToolMessage } from '../tools/template-messages.ts';
import { FieldReader, isObject } from './field-reader.ts';
import { readToolCalls } from './openai-tools.ts';
import { fieldNotSupported } from './server-errors.ts';

const ROLES = ['system', 'developer', 'user', 'assistant', 'tool'];

/**
 * The conversation of a chat request in the format for templates: every content is one string. `messagesMax` is the
 * model's length, because every message has at least one token.
 */
export function readMessages(reader: FieldReader, messagesMax: number): ToolMessage[] {
  const limit: PartLimit = { partsMax: messagesMax, parts: 0 };
  const messages = reader.list('messages', (item, name) => readMessage(item, name, limit), {
    min: 1,
    max: messagesMax,
  });
  return reader.required('messages', messages, 'a list of messages with `role` and `content`');
}

/** Limits the content parts of all messages together: a newline follows each part, so each part has a token. */
interface PartLimit {
  readonly partsMax: number;
  parts: number;
}

function readMessage(item: unknown, itemName: string, limit: PartLimit): ToolMessage {
  if (isPlainMessage(item)) return { role: item.role === 'developer' ? 'system' : item.role, content: item.content };
  const reader = new FieldReader(item, `${itemName}.`);
  const role = reader.required('role', reader.name('role'), `one of ${ROLES.join(', ')}`);
  if (!ROLES.includes(role)) throw reader.invalid('role', `one of ${ROLES.join(', ')}`, describeValue(role));
  const toolCalls = role === 'assistant' ? readToolCalls(reader, `${itemName}.`) : [];
  const content = readContent(reader, { itemName, limit, mayLack: toolCalls.length > 0 });
  const callId = role === 'tool' ? reader.name('tool_call_id') : undefined;
  const name = reader.name('name');
  // Templates of reasoning models read it in earlier turns.
  const reasoning = reader.string('reasoning_content');
  // Clients send an earlier answer back unchanged, with these fields empty.
  for (const field of ['function_call', 'audio', 'refusal', 'annotations']) {
    reader.refuse(field, (value) => Array.isArray(value) && value.length === 0);
  }
  reader.finish();
  return {
    // `developer` is OpenAI's newer name of `system`; templates know the older name.
    role: role === 'developer' ? 'system' : role,
    content,
    ...(name === undefined ? {} : { name }),
    ...(callId === undefined ? {} : { tool_call_id: callId }),
    ...(toolCalls.length === 0 ? {} : { toolCalls }),
    ...(reasoning === undefined ? {} : { reasoning_content: reasoning }),
  };
}

/** Nearly all messages are plain. Reading 100,000 messages field by field would take a second. */
function isPlainMessage(item: unknown): item is { readonly role: string; readonly content: string } {
  if (!isObject(item)) return false;
  for (const name in item) if (name !== 'role' && name !== 'content') return false;
  const { role, content } = item;
  return (
    typeof role === 'string' && ROLES.includes(role) && typeof content === 'string' && !/\p{Surrogate}/u.test(content)
  );
}

/** Nearly all parts are plain, and then need no reader. */
function isPlainPart(part: unknown): part is { readonly type: 'text'; readonly text: string } {
  if (!isObject(part)) return false;
  for (const name in part) if (name !== 'type' && name !== 'text') return false;
  return part.type === 'text' && typeof part.text === 'string' && !/\p{Surrogate}/u.test(part.text);
}

/** A string, or a list of text parts, which are joined with newlines as in vLLM. `mayLack`: an answer with calls only. */
function readContent(
  reader: FieldReader,
  { itemName, limit, mayLack }: { readonly itemName: string; readonly limit: PartLimit; readonly mayLack: boolean },
): string {
  const value = reader.raw('content') ?? (mayLack ? '' : undefined);
  if (!Array.isArray(value)) return reader.text('content', reader.required('content', value, 'a string'));
  limit.parts += value.length;
  if (limit.parts > limit.partsMax) {
    const expected = `a list of parts, at most ${limit.partsMax} of them in all messages together`;
    throw reader.invalid('content', expected, `${value.length} parts, which makes ${limit.parts}`);
  }
  const texts = reader.list('content', (part, name) => {
    if (isPlainPart(part)) return part.text;
    const type = isObject(part) ? part.type : undefined;
    if (typeof type === 'string' && type !== 'text') {
      throw fieldNotSupported({
        parameter: `${itemName}.${name}`,
        detail: `: a part of type ${describeValue(type)} (the model reads text only)`,
      });
    }
    const partReader = new FieldReader(part, `${itemName}.${name}.`);
    partReader.required('type', partReader.name('type'), '"text"');
    const text = partReader.required('text', partReader.string('text'), 'a string');
    partReader.finish();
    return text;
  });
  return texts!.join('\n');
}
