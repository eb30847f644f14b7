import { describeValue } from '../../../base/describe-value.ts';
import { writeExactJson } from '../../../base/exact-json.ts';
import { type FieldReader, shapes, withoutUndefined } from '../../../base/field-reader.ts';
import { isJsonObject, type JsonObject } from '../../../base/json.ts';
import { joinedParts, type TextPart, type ToolMessage } from '../../../tools/template-messages.ts';
import type { Tool, ToolCall } from '../../../tools/tool.ts';
import type { ParsedChat, ParseLimits } from '../../generation/request.ts';
import { bodyReader } from '../../http/body-reader.ts';
import { fieldNotSupported } from '../../http/server-errors.ts';
import { efforts, type OwnChatFields, readChat } from '../openai/parse.ts';
import { schemaStructure } from '../openai/structured.ts';
import {
  chosenTools,
  schemaExpected,
  type ToolChoice,
  toolNameExpected,
  toolNamePattern,
  toolsMax,
} from '../openai/tools.ts';

/**
 * Reads what the Messages API calls differently than a chat. All other fields are those of a chat, so a client may send those of vLLM too
 * (`seed`, `min_p`, `cache_salt`, ...).
 * @throws KvasirError 400 that names the field as the client wrote it
 */
export function readMessageRequest(body: unknown, limits: ParseLimits): ParsedChat {
  const reader = bodyReader(body, limits);
  const { tools, ignored } = readTools(reader);
  const messages = [...readSystem(reader), ...readMessages(reader)];
  checkCount(reader, messages, limits);
  const own = {
    messages,
    tools: chosenTools(tools, ...readToolChoice(reader, tools)),
    stop: reader.raw('stop_sequences', shapes.texts),
    variables: readThinking(reader),
    ...readOutputFormat(reader),
    continuesAnswer: isText(messages.at(-1)),
  };
  const foreign = reader.ignore(foreignFields);
  reader.ignore(silentFields);
  const chat = readChat(reader, limits, own);
  return { ...chat, ignored: [...chat.ignored, ...foreign, ...ignored] };
}

const isText = (message: ToolMessage | undefined): boolean =>
  message?.role === 'assistant' && message.toolCalls === undefined;

/** Those that concern what only Anthropic's servers have. */
const foreignFields = ['container', 'context_management', 'mcp_servers', 'inference_geo', 'speed'];
/** Those that change nothing here: prefixes are cached without marks. */
const silentFields = ['cache_control', 'betas', 'diagnostics'];

/** Claude Code puts a line with the version and a number that changes into the prompt, which would end each cached prefix at its start. */
const billingHeader = /^x-anthropic-billing-header:.*(?:\n+|$)/;

function readSystem(reader: FieldReader): ToolMessage[] {
  const value = reader.raw('system', shapes.text, shapes.list);
  if (value === undefined) return [];
  if (!Array.isArray(value)) {
    const content = reader.wellFormed('system', value).replace(billingHeader, '');
    return content === '' ? [] : [{ role: 'system', content }];
  }
  const texts = reader.objects('system', (block) => textOf(block).replace(billingHeader, '')) ?? [];
  const shown = texts.filter((text) => text !== '');
  return shown.length === 0 ? [] : [{ role: 'system', ...contentOf(shown) }];
}

function readMessages(reader: FieldReader): ToolMessage[] {
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
function readAnswer(message: FieldReader): ToolMessage {
  const texts: string[] = [];
  const thoughts: string[] = [];
  const calls: ToolCall[] = [];
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
    ...contentOf(texts),
    ...(thoughts.length === 0 ? {} : { reasoning_content: thoughts.join('') }),
    ...(calls.length === 0 ? {} : { toolCalls: calls }),
  };
}

function readCall(block: FieldReader): ToolCall {
  const id = block.required('id', block.name('id'), 'a string');
  const name = block.required('name', block.name('name'), 'the name of a tool');
  const input = block.exact('input', shapes.object) ?? {};
  if (!isJsonObject(input)) throw block.invalid('input', 'an object');
  return { id, name, arguments: writeExactJson(input) };
}

/** A message of the user: texts, and the results of calls, which are messages of their own in chats. */
function readTurn(message: FieldReader, role: string): ToolMessage[] {
  const messages: ToolMessage[] = [];
  let texts: string[] = [];
  const flush = (): void => {
    if (texts.length > 0) messages.push({ role, ...contentOf(texts) });
    texts = [];
  };
  message.objects('content', (block) => {
    const type = typeOf(block);
    if (type === 'text') texts.push(textOf(block));
    else if (type === 'document') texts.push(readDocument(block));
    else if (type === 'tool_result') {
      flush();
      const id = block.required('tool_use_id', block.name('tool_use_id'), 'the id of a call');
      messages.push({ role: 'tool', ...readResult(block), tool_call_id: id });
    } else throw notSupported(block, type);
  });
  flush();
  return messages.length === 0 ? [{ role, content: '' }] : messages;
}

function readResult(block: FieldReader): Pick<ToolMessage, 'content' | 'parts'> {
  const content = block.raw('content', shapes.text, shapes.list);
  if (content === undefined) return { content: '' };
  if (!Array.isArray(content)) return { content: block.wellFormed('content', content) };
  return contentOf(block.objects('content', readResultPart) ?? []);
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

/** No texts are an empty text, and several are parts. */
function contentOf(texts: readonly string[]): Pick<ToolMessage, 'content' | 'parts'> {
  if (texts.length === 0) return { content: '' };
  const parts = texts.map((text): TextPart => ({ type: 'text', text }));
  return { content: joinedParts(parts), parts };
}

/** Each message and each part of a text has at least one token. */
function checkCount(reader: FieldReader, messages: readonly ToolMessage[], { maxModelLen }: ParseLimits): void {
  const count = messages.reduce((sum, { parts }) => sum + Math.max(1, parts?.length ?? 1), 0);
  if (count > 0 && count <= maxModelLen) return;
  throw reader.invalid('messages', `a list with 1 to ${maxModelLen} messages and blocks in all`, `${count}`);
}

const notSupported = (block: FieldReader, type: string | undefined): Error =>
  fieldNotSupported({
    parameter: block.path,
    detail: `: a block of type ${describeValue(type)} (the model reads text only)`,
  });

/** Tools that Anthropic's servers or clients define themselves have no schema, so a model cannot be told of them. */
function readTools(reader: FieldReader): { readonly tools: readonly Tool[]; readonly ignored: readonly string[] } {
  const ignored: string[] = [];
  const names = new Set<string>();
  const readTool = (tool: FieldReader): Tool[] => {
    const type = tool.name('type') ?? 'custom';
    if (type !== 'custom') {
      ignored.push(`${tool.path} (${type})`);
      return [];
    }
    const given = tool.exact('input_schema', shapes.object);
    const parameters = tool.required('input_schema', given, schemaExpected);
    if (!isJsonObject(parameters)) throw tool.invalid('input_schema', schemaExpected);
    const name = tool.required('name', tool.name('name'), 'the name of the tool');
    if (!toolNamePattern.test(name)) throw tool.invalid('name', toolNameExpected);
    if (names.has(name)) throw tool.invalid('name', 'a name that no other tool has');
    names.add(name);
    const description = tool.string('description');
    const strict = tool.boolean('strict') === true ? true : undefined;
    return [
      {
        type: 'function',
        function: { name, ...withoutUndefined({ description }), parameters, ...withoutUndefined({ strict }) },
      },
    ];
  };
  return { tools: reader.objects('tools', readTool, { max: toolsMax })?.flat() ?? [], ignored };
}

function readToolChoice(reader: FieldReader, tools: readonly Tool[]): [ToolChoice, boolean] {
  const choice = reader.object('tool_choice');
  const areParallel = reader.boolean('parallel_tool_calls') ?? true;
  if (choice === undefined) return ['auto', areParallel];
  const type = choice.requiredChoice('type', ['auto', 'any', 'tool', 'none']);
  const isSingle = choice.boolean('disable_parallel_tool_use') ?? false;
  const parallel = areParallel && !isSingle;
  if (type === 'auto' || type === 'none') return [type, parallel];
  const name = type === 'any' ? undefined : choice.required('name', choice.name('name'), 'the name of a tool');
  if (tools.length === 0) throw reader.invalid('tool_choice', '"none" or "auto" without `tools`');
  if (name === undefined) return ['required', parallel];
  const known = tools.map((tool) => tool.function.name);
  if (!known.includes(name)) throw choice.invalid('name', `one of ${known.join(', ')}`);
  return [{ name }, parallel];
}

/** Templates of reasoning models read `enable_thinking`. A budget of tokens is not kept. */
function readThinking(reader: FieldReader): JsonObject | undefined {
  const thinking = reader.object('thinking');
  if (thinking === undefined) return undefined;
  const type = thinking.requiredChoice('type', ['enabled', 'adaptive', 'disabled']);
  const given = reader.raw('chat_template_kwargs', shapes.object);
  return { enable_thinking: type !== 'disabled', ...(isJsonObject(given) ? given : {}) };
}

function readOutputFormat(reader: FieldReader): Pick<OwnChatFields, 'effort' | 'structure'> {
  const config = reader.object('output_config');
  const format = config?.object('format') ?? reader.object('output_format');
  const effort = config?.choice('effort', efforts);
  if (format === undefined) return { effort };
  format.requiredChoice('type', ['json_schema']);
  const schema = format.required('schema', format.exact('schema', shapes.object), 'a JSON schema');
  if (!isJsonObject(schema)) throw format.invalid('schema', schemaExpected);
  return { effort, structure: schemaStructure(schema, format.pathOf('schema'), undefined) };
}
