import { byEntries } from '../../base/by-name.ts';
import { describeValue } from '../../base/describe-value.ts';
import { writeExactJson } from '../../base/exact-json.ts';
import { type FieldReader, shapes, withoutUndefined } from '../../base/field-reader.ts';
import { isJsonObject } from '../../base/json.ts';
import { type BodyOptions, bodyReader } from '../body-reader.ts';
import { fieldNotSupported } from '../server-errors.ts';

/** A request of the Messages API as a request of a chat with the same meaning. */
export interface ChatOfMessages {
  /** A body for `parseChat`. */
  readonly body: Readonly<Record<string, unknown>>;
  /** Fields and tools that were set and have no effect. */
  readonly ignored: readonly string[];
}

/**
 * Reads what the Messages API calls differently than a chat. All other fields stay as they are, so a client may send those of vLLM too
 * (`seed`, `min_p`, `cache_salt`, ...).
 * @throws KvasirError 400 that names the field as the client wrote it
 */
export function chatOfMessages(body: unknown, options?: BodyOptions): ChatOfMessages {
  const reader = bodyReader(body, options);
  const { tools, ignored } = readTools(reader);
  const chat = {
    ...withoutFields(body as object, ownFields),
    messages: [...readSystem(reader), ...readMessages(reader)],
    ...(tools.length === 0 ? {} : { tools }),
    ...readToolChoice(reader),
    ...withoutUndefined({ stop: reader.raw('stop_sequences', shapes.texts) }),
    ...readThinking(reader),
    ...readOutputFormat(reader),
  };
  const last = chat.messages.at(-1);
  // The answer goes on where the last message ends.
  const continued = last?.role === 'assistant' && last.tool_calls === undefined;
  return {
    body: continued ? { ...chat, continue_final_message: true, add_generation_prompt: false } : chat,
    ignored: [...reader.ignore(foreignFields), ...ignored],
  };
}

/** Fields of the Messages API that have another name or form in chats. */
const ownFields = ['system', 'tools', 'tool_choice', 'stop_sequences', 'thinking', 'output_config', 'output_format'];
/** Those that concern what only Anthropic's servers have. */
const foreignFields = ['container', 'context_management', 'mcp_servers', 'inference_geo', 'speed'];
/** Those that change nothing here: prefixes are cached without marks. */
const silentFields = ['cache_control', 'betas', 'diagnostics'];

interface ChatMessage {
  readonly role: string;
  readonly content: unknown;
  readonly reasoning_content?: string;
  readonly tool_calls?: readonly object[];
  readonly tool_call_id?: string;
}

/** Claude Code puts a line with the version and a number that changes into the prompt, which would end each cached prefix at its start. */
const billingHeader = /^x-anthropic-billing-header:.*(?:\n+|$)/;

function readSystem(reader: FieldReader): ChatMessage[] {
  const value = reader.raw('system', shapes.text, shapes.list);
  if (value === undefined) return [];
  if (!Array.isArray(value)) {
    const content = reader.wellFormed('system', value).replace(billingHeader, '');
    return content === '' ? [] : [{ role: 'system', content }];
  }
  const texts = reader.objects('system', (block) => textOf(block).replace(billingHeader, '')) ?? [];
  const content = texts.filter((text) => text !== '').map(textPart);
  return content.length === 0 ? [] : [{ role: 'system', content }];
}

function readMessages(reader: FieldReader): ChatMessage[] {
  const messages = reader.objects('messages', (message) => {
    const role = message.requiredChoice('role', ['user', 'assistant', 'system']);
    const content = message.required(
      'content',
      message.raw('content', shapes.text, shapes.list),
      'a string or a list of blocks',
    );
    if (!Array.isArray(content)) return [{ role, content: message.wellFormed('content', content) }];
    return role === 'assistant' ? [readAnswer(message)] : readTurn(message, role);
  });
  return reader.required('messages', messages, 'a list of messages').flat();
}

/** An earlier answer: texts, thoughts and calls. */
function readAnswer(message: FieldReader): ChatMessage {
  const texts: string[] = [];
  const thoughts: string[] = [];
  const calls: object[] = [];
  message.objects('content', (block) => {
    const type = typeOf(block);
    if (type === 'text') texts.push(textOf(block));
    else if (type === 'thinking') thoughts.push(block.required('thinking', block.string('thinking'), 'a string'));
    else if (type === 'tool_use') calls.push(readCall(block));
    // What another server hid from its client.
    else if (type !== 'redacted_thinking') throw notSupported(block, type);
  });
  return {
    role: 'assistant',
    content: texts.length === 0 ? (calls.length === 0 ? '' : null) : texts.map(textPart),
    ...(thoughts.length === 0 ? {} : { reasoning_content: thoughts.join('') }),
    ...(calls.length === 0 ? {} : { tool_calls: calls }),
  };
}

function readCall(block: FieldReader): object {
  const id = block.required('id', block.name('id'), 'a string');
  const name = block.required('name', block.name('name'), 'the name of a tool');
  const input = block.exact('input', shapes.object) ?? {};
  if (!isJsonObject(input)) throw block.invalid('input', 'an object');
  return { id, type: 'function', function: { name, arguments: writeExactJson(input) } };
}

/** A message of the user: texts, and the results of calls, which are messages of their own in chats. */
function readTurn(message: FieldReader, role: string): ChatMessage[] {
  const messages: ChatMessage[] = [];
  let texts: string[] = [];
  const flush = (): void => {
    if (texts.length > 0) messages.push({ role, content: texts.map(textPart) });
    texts = [];
  };
  message.objects('content', (block) => {
    const type = typeOf(block);
    if (type === 'text') texts.push(textOf(block));
    else if (type === 'document') texts.push(readDocument(block));
    else if (type === 'tool_result') {
      flush();
      const id = block.required('tool_use_id', block.name('tool_use_id'), 'the id of a call');
      messages.push({ role: 'tool', tool_call_id: id, content: readResult(block) });
    } else throw notSupported(block, type);
  });
  flush();
  return messages.length === 0 ? [{ role, content: '' }] : messages;
}

function readResult(block: FieldReader): unknown {
  const content = block.raw('content', shapes.text, shapes.list);
  if (content === undefined) return '';
  if (!Array.isArray(content)) return block.wellFormed('content', content);
  return block.objects('content', (part) => textPart(readResultPart(part)));
}

function readResultPart(part: FieldReader): string {
  const type = typeOf(part);
  if (type === 'document') return readDocument(part);
  if (type !== 'tool_reference') return textOf(part);
  // The answer of a search for tools. The request has the tool itself, so its name is enough.
  const name = part.required('tool_name', part.name('tool_name'), 'the name of a tool');
  return `The tool ${name} is available.`;
}

/** A document whose source is text. */
function readDocument(block: FieldReader): string {
  const source = block.required('source', block.object('source'), 'an object');
  const type = source.name('type');
  if (type !== 'text') throw notSupported(source, type);
  return source.required('data', source.string('data'), 'a text');
}

const typeOf = (block: FieldReader): string => block.required('type', block.name('type'), 'the type of a block');

function textOf(block: FieldReader): string {
  const type = typeOf(block);
  if (type !== 'text') throw notSupported(block, type);
  return block.required('text', block.string('text'), 'a string');
}

const textPart = (text: string): object => ({ type: 'text', text });

const notSupported = (block: FieldReader, type: string | undefined): Error =>
  fieldNotSupported({
    parameter: block.path,
    detail: `: a block of type ${describeValue(type)} (the model reads text only)`,
  });

/** Tools that Anthropic's servers or clients define themselves have no schema, so a model cannot be told of them. */
function readTools(reader: FieldReader): { readonly tools: readonly object[]; readonly ignored: readonly string[] } {
  const ignored: string[] = [];
  const tools = reader.objects('tools', (tool) => {
    const type = tool.name('type') ?? 'custom';
    if (type !== 'custom') {
      ignored.push(`${tool.path} (${type})`);
      return [];
    }
    const parameters = tool.required(
      'input_schema',
      tool.exact('input_schema', shapes.object),
      'a JSON schema, which is an object',
    );
    const described = {
      name: tool.required('name', tool.name('name'), 'the name of the tool'),
      parameters,
      ...withoutUndefined({ description: tool.string('description'), strict: tool.boolean('strict') }),
    };
    return [{ type: 'function', function: described }];
  });
  return { tools: tools?.flat() ?? [], ignored };
}

function readToolChoice(reader: FieldReader): object {
  const choice = reader.object('tool_choice');
  if (choice === undefined) return {};
  const type = choice.requiredChoice('type', ['auto', 'any', 'tool', 'none']);
  const isSingle = choice.boolean('disable_parallel_tool_use') ?? false;
  const parallel = isSingle ? { parallel_tool_calls: false } : {};
  if (type === 'auto' || type === 'none') return { tool_choice: type, ...parallel };
  if (type === 'any') return { tool_choice: 'required', ...parallel };
  const name = choice.required('name', choice.name('name'), 'the name of a tool');
  return { tool_choice: { type: 'function', function: { name } }, ...parallel };
}

/** Templates of reasoning models read `enable_thinking`. A budget of tokens is not kept. */
function readThinking(reader: FieldReader): object {
  const thinking = reader.object('thinking');
  if (thinking === undefined) return {};
  const type = thinking.requiredChoice('type', ['enabled', 'adaptive', 'disabled']);
  const given = reader.raw('chat_template_kwargs', shapes.object);
  return { chat_template_kwargs: { enable_thinking: type !== 'disabled', ...(isJsonObject(given) ? given : {}) } };
}

function readOutputFormat(reader: FieldReader): object {
  const config = reader.object('output_config');
  const format = config?.object('format') ?? reader.object('output_format');
  const effort = config?.name('effort');
  if (format === undefined) return withoutUndefined({ reasoning_effort: effort });
  format.requiredChoice('type', ['json_schema']);
  const schema = format.required('schema', format.exact('schema', shapes.object), 'a JSON schema');
  const response_format = { type: 'json_schema', json_schema: { name: 'output', schema } };
  return { response_format, ...withoutUndefined({ reasoning_effort: effort }) };
}

function withoutFields(body: object, names: readonly string[]): object {
  const all = new Set([...names, ...foreignFields, ...silentFields]);
  return byEntries(Object.entries(body).filter(([name]) => !all.has(name)));
}
