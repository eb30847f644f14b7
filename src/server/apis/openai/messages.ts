import { describeValue } from '../../../base/describe-value.ts';
import { type FieldReader, shapes } from '../../../base/field-reader.ts';
import { isJsonObject } from '../../../base/json.ts';
import { joinedParts, type TextPart, type ToolMessage } from '../../../tools/template-messages.ts';
import { fieldNotSupported } from '../../http/server-errors.ts';
import { readToolCalls } from './tools.ts';

export const roles = ['system', 'developer', 'user', 'assistant', 'tool'];

/**
 * The conversation of a chat request in the format for templates: every content is one string. `messagesMax` is the
 * model's length, because every message has at least one token.
 */
export function readMessages(reader: FieldReader, messagesMax: number): ToolMessage[] {
  const limit: PartLimit = { partsMax: messagesMax, parts: 0 };
  const messages = reader.list(
    'messages',
    (item, name) => (isPlainMessage(item) ? plainMessage(item) : readMessage(reader.inside(name, item), limit)),
    { min: 1, max: messagesMax },
  );
  return reader.required('messages', messages, 'a list of messages with `role` and `content`');
}

/** Limits the content parts of all messages together: a newline follows each part, so each part has a token. */
interface PartLimit {
  readonly partsMax: number;
  parts: number;
}

/** `developer` is OpenAI's newer name of `system`; templates know the older name. */
export const roleOf = (role: string): string => (role === 'developer' ? 'system' : role);
const plainMessage = ({ role, content }: PlainMessage): ToolMessage => ({ role: roleOf(role), content });

function readMessage(reader: FieldReader, limit: PartLimit): ToolMessage {
  const role = reader.requiredChoice('role', roles);
  const isAnswer = role === 'assistant';
  const toolCalls = isAnswer ? readToolCalls(reader) : [];
  const refusal = isAnswer ? reader.string('refusal') : undefined;
  const content = readContent(reader, limit, isAnswer ? (refusal ?? '') : undefined);
  const callId = role === 'tool' ? reader.name('tool_call_id') : undefined;
  const name = reader.name('name');
  const reasoning = isAnswer ? readReasoning(reader) : reader.string('reasoning_content');
  // Clients send an earlier answer back unchanged.
  reader.ignore(isAnswer ? answerFields : []);
  for (const field of ['function_call', 'audio', ...(isAnswer ? [] : ['refusal', 'annotations'])]) {
    reader.refuse(field, (value) => Array.isArray(value) && value.length === 0);
  }
  reader.finish();
  return {
    role: roleOf(role),
    ...content,
    ...(name === undefined ? {} : { name }),
    ...(callId === undefined ? {} : { tool_call_id: callId }),
    ...(toolCalls.length === 0 ? {} : { toolCalls }),
    ...(reasoning === undefined ? {} : { reasoning_content: reasoning }),
  };
}

/** Fields of answers that tell a model nothing: of OpenAI's client, LiteLLM, OpenRouter and others. */
const answerFields = [
  ...['annotations', 'provider_specific_fields', 'thinking_blocks', 'parsed', 'images', 'id', 'index'],
  ...['reasoning_signature', 'logprobs', 'finish_reason', 'stop_reason'],
];

/**
 * The thoughts of an earlier answer, which templates of reasoning models read. Servers have different names for them:
 * `reasoning_content` (DeepSeek), `reasoning` (vLLM, OpenRouter), `reasoning_details` (OpenRouter: parts, some without text).
 */
function readReasoning(reader: FieldReader): string | undefined {
  const text = reader.string('reasoning_content');
  const other = reader.string('reasoning');
  const parts = reader.list('reasoning_details', (part, name) => {
    const detail = isJsonObject(part) ? (part.text ?? part.summary) : undefined;
    return typeof detail === 'string' ? reader.wellFormed(name, detail) : '';
  });
  return text ?? other ?? (parts === undefined ? undefined : parts.join(''));
}

interface PlainMessage {
  readonly role: string;
  readonly content: string;
}

/** Nearly all messages are plain. Reading 100,000 messages field by field would take a second. */
function isPlainMessage(item: unknown): item is PlainMessage {
  if (!isJsonObject(item)) return false;
  for (const name in item) if (name !== 'role' && name !== 'content') return false;
  const { role, content } = item;
  return (
    typeof role === 'string' && roles.includes(role) && typeof content === 'string' && !/\p{Surrogate}/u.test(content)
  );
}

/** Nearly all parts are plain, and then need no reader. */
function isPlainPart(part: unknown): part is { readonly type: 'text'; readonly text: string } {
  if (!isJsonObject(part)) return false;
  for (const name in part) if (name !== 'type' && name !== 'text') return false;
  return part.type === 'text' && typeof part.text === 'string' && !/\p{Surrogate}/u.test(part.text);
}

/** A string, or a list of text parts. `ifAbsent`: for an answer, which can have calls only, or nothing. */
function readContent(
  reader: FieldReader,
  limit: PartLimit,
  ifAbsent: string | undefined,
): Pick<ToolMessage, 'content' | 'parts'> {
  const value = reader.raw('content', shapes.text, shapes.list) ?? ifAbsent;
  if (!Array.isArray(value))
    return { content: reader.wellFormed('content', reader.required('content', value, 'a string')) };
  limit.parts += value.length;
  if (limit.parts > limit.partsMax) {
    const expected = `a list of parts, at most ${limit.partsMax} of them in all messages together`;
    throw reader.invalid('content', expected, `${value.length} parts, which makes ${limit.parts}`);
  }
  const texts = reader.list('content', (part, name) => {
    if (isPlainPart(part)) return part.text;
    const type = isJsonObject(part) ? part.type : undefined;
    if (type === 'refusal' && ifAbsent !== undefined) {
      const refused = reader.inside(name, part);
      return refused.required('refusal', refused.string('refusal'), 'a string');
    }
    if (typeof type === 'string' && type !== 'text') {
      throw fieldNotSupported({
        parameter: reader.pathOf(name),
        detail: `: a part of type ${describeValue(type)} (the model reads text only)`,
      });
    }
    const partReader = reader.inside(name, part);
    partReader.required('type', partReader.name('type'), '"text"');
    const text = partReader.required('text', partReader.string('text'), 'a string');
    // Marks for caches of other servers, and of other servers' answers.
    partReader.ignore(['cache_control', 'annotations', 'prompt_cache_breakpoint']);
    partReader.finish();
    return text;
  });
  const parts = texts!.map((text): TextPart => ({ type: 'text', text }));
  return { content: joinedParts(parts), parts };
}
