import { writeExactJson } from '../../base/exact-json.ts';
import { isJsonObject } from '../../base/json.ts';
import { describeValue } from '../../core/sampling-read.ts';
import { FieldReader, isObject } from '../field-reader.ts';
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
export function chatOfMessages(body: unknown): ChatOfMessages {
  const reader = new FieldReader(body);
  const { tools, ignored } = readTools(reader);
  const chat = {
    ...withoutFields(body as object, ownFields),
    messages: [...readSystem(reader), ...readMessages(reader)],
    ...(tools.length === 0 ? {} : { tools }),
    ...readToolChoice(reader),
    ...present({ stop: reader.raw('stop_sequences') }),
    ...readThinking(reader),
    ...readOutputFormat(reader),
  };
  const last = chat.messages.at(-1);
  // The answer goes on where the last message ends.
  const continued = last?.role === 'assistant' && last.tool_calls === undefined;
  return {
    body: continued ? { ...chat, continue_final_message: true, add_generation_prompt: false } : chat,
    ignored: [...reader.ignoreForeign(foreignFields), ...ignored],
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
  const value = reader.raw('system');
  if (value === undefined) return [];
  if (!Array.isArray(value)) {
    const content = reader.text('system', value).replace(billingHeader, '');
    return content === '' ? [] : [{ role: 'system', content }];
  }
  const texts = reader.list('system', (block, name) => textOf(block, name).replace(billingHeader, '')) ?? [];
  const content = texts.filter((text) => text !== '').map(textPart);
  return content.length === 0 ? [] : [{ role: 'system', content }];
}

function readMessages(reader: FieldReader): ChatMessage[] {
  const messages = reader.list('messages', (item, path) => {
    const message = new FieldReader(item, `${path}.`);
    const role = message.required('role', message.name('role'), '"user" or "assistant"');
    if (role !== 'user' && role !== 'assistant' && role !== 'system')
      throw message.invalid('role', '"user" or "assistant"', describeValue(role));
    const content = message.raw('content');
    if (!Array.isArray(content)) {
      return [{ role, content: message.text('content', message.required('content', content, 'a string or a list')) }];
    }
    return role === 'assistant' ? [readAnswer(message, path)] : readTurn(message, path, role);
  });
  return reader.required('messages', messages, 'a list of messages').flat();
}

/** An earlier answer: texts, thoughts and calls. */
function readAnswer(message: FieldReader, path: string): ChatMessage {
  const texts: string[] = [];
  const thoughts: string[] = [];
  const calls: object[] = [];
  message.list('content', (item, name) => {
    const { type, block } = blockOf(item, `${path}.${name}`);
    if (type === 'text') texts.push(textOf(item, `${path}.${name}`));
    else if (type === 'thinking') thoughts.push(block.required('thinking', block.string('thinking'), 'a string'));
    else if (type === 'tool_use') calls.push(readCall(block));
    // What another server hid from its client.
    else if (type !== 'redacted_thinking') throw notSupported(`${path}.${name}`, type);
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
  const input = block.exact('input') ?? {};
  if (!isJsonObject(input)) throw block.invalid('input', 'an object', describeValue(input));
  return { id, type: 'function', function: { name, arguments: writeExactJson(input) } };
}

/** A message of the user: texts, and the results of calls, which are messages of their own in chats. */
function readTurn(message: FieldReader, path: string, role: string): ChatMessage[] {
  const messages: ChatMessage[] = [];
  let texts: string[] = [];
  const flush = (): void => {
    if (texts.length > 0) messages.push({ role, content: texts.map(textPart) });
    texts = [];
  };
  message.list('content', (item, name) => {
    const { type, block } = blockOf(item, `${path}.${name}`);
    if (type === 'text') texts.push(textOf(item, `${path}.${name}`));
    else if (type === 'document') texts.push(readDocument(block, `${path}.${name}`));
    else if (type === 'tool_result') {
      flush();
      const id = block.required('tool_use_id', block.name('tool_use_id'), 'the id of a call');
      messages.push({ role: 'tool', tool_call_id: id, content: readResult(block, `${path}.${name}`) });
    } else throw notSupported(`${path}.${name}`, type);
  });
  flush();
  return messages.length === 0 ? [{ role, content: '' }] : messages;
}

function readResult(block: FieldReader, path: string): unknown {
  const content = block.raw('content');
  if (content === undefined) return '';
  if (!Array.isArray(content)) return block.text('content', content);
  return block.list('content', (item, name) => textPart(textOf(item, `${path}.${name}`)));
}

/** A document whose source is text. */
function readDocument(block: FieldReader, path: string): string {
  const source = block.required('source', block.object('source'), 'an object');
  const type = source.name('type');
  if (type !== 'text') throw notSupported(`${path}.source`, type);
  return source.required('data', source.string('data'), 'a text');
}

function blockOf(item: unknown, path: string): { readonly type: string; readonly block: FieldReader } {
  const block = new FieldReader(item, `${path}.`);
  return { type: block.required('type', block.name('type'), 'the type of a block'), block };
}

function textOf(item: unknown, path: string): string {
  const { type, block } = blockOf(item, path);
  if (type !== 'text') throw notSupported(path, type);
  return block.required('text', block.string('text'), 'a string');
}

const textPart = (text: string): object => ({ type: 'text', text });

const notSupported = (parameter: string, type: string | undefined): Error =>
  fieldNotSupported({ parameter, detail: `: a block of type ${describeValue(type)} (the model reads text only)` });

/** Tools that Anthropic's servers or clients define themselves have no schema, so a model cannot be told of them. */
function readTools(reader: FieldReader): { readonly tools: readonly object[]; readonly ignored: readonly string[] } {
  const ignored: string[] = [];
  const tools = reader.list('tools', (item, path) => {
    const tool = new FieldReader(item, `${path}.`);
    const type = tool.name('type') ?? 'custom';
    if (type !== 'custom') {
      ignored.push(`${path} (${type})`);
      return [];
    }
    const parameters = tool.required('input_schema', tool.exact('input_schema'), 'a JSON schema, which is an object');
    const described = {
      name: tool.required('name', tool.name('name'), 'the name of the tool'),
      parameters,
      ...present({ description: tool.string('description'), strict: tool.boolean('strict') }),
    };
    return [{ type: 'function', function: described }];
  });
  return { tools: tools?.flat() ?? [], ignored };
}

function readToolChoice(reader: FieldReader): object {
  const choice = reader.object('tool_choice');
  if (choice === undefined) return {};
  const type = choice.required('type', choice.name('type'), '"auto", "any", "tool" or "none"');
  const isSingle = choice.boolean('disable_parallel_tool_use') ?? false;
  const parallel = isSingle ? { parallel_tool_calls: false } : {};
  if (type === 'auto' || type === 'none') return { tool_choice: type, ...parallel };
  if (type === 'any') return { tool_choice: 'required', ...parallel };
  if (type !== 'tool') throw choice.invalid('type', '"auto", "any", "tool" or "none"', describeValue(type));
  const name = choice.required('name', choice.name('name'), 'the name of a tool');
  return { tool_choice: { type: 'function', function: { name } }, ...parallel };
}

/** Templates of reasoning models read `enable_thinking`. A budget of tokens is not kept. */
function readThinking(reader: FieldReader): object {
  const thinking = reader.object('thinking');
  if (thinking === undefined) return {};
  const expected = '"enabled", "adaptive" or "disabled"';
  const type = thinking.required('type', thinking.name('type'), expected);
  if (!['enabled', 'adaptive', 'disabled'].includes(type))
    throw thinking.invalid('type', expected, describeValue(type));
  const given = reader.raw('chat_template_kwargs');
  return { chat_template_kwargs: { enable_thinking: type !== 'disabled', ...(isObject(given) ? given : {}) } };
}

function readOutputFormat(reader: FieldReader): object {
  const config = reader.object('output_config');
  const format = config?.object('format') ?? reader.object('output_format');
  const effort = config?.name('effort');
  if (format === undefined) return present({ reasoning_effort: effort });
  const type = format.required('type', format.name('type'), '"json_schema"');
  if (type !== 'json_schema') throw format.invalid('type', '"json_schema"', describeValue(type));
  const schema = format.required('schema', format.exact('schema'), 'a JSON schema');
  const response_format = { type: 'json_schema', json_schema: { name: 'output', schema } };
  return { response_format, ...present({ reasoning_effort: effort }) };
}

function withoutFields(body: object, names: readonly string[]): object {
  const all = new Set([...names, ...foreignFields, ...silentFields]);
  return Object.fromEntries(Object.entries(body).filter(([name]) => !all.has(name)));
}

const present = (fields: object): object =>
  Object.fromEntries(Object.entries(fields).filter(([, value]) => value !== undefined));
