import { byName } from '../../../base/by-name.ts';
import { writeExactJson } from '../../../base/exact-json.ts';
import { type FieldReader, shapes, withoutUndefined } from '../../../base/field-reader.ts';
import { isJsonObject } from '../../../base/json.ts';
import { type AskedStructure, readStructuredOutputs } from '../../../core/structured-outputs.ts';
import { structuredSource } from '../../../grammar/structured-grammar.ts';
import type { ToolMessage } from '../../../tools/template-messages.ts';
import type { Tool, ToolCall } from '../../../tools/tool.ts';
import type { ParsedChat, ParsedCompletion, ParsedGeneration, ParseLimits } from '../../generation/request.ts';
import { type BodyOptions, bodyReader } from '../../http/body-reader.ts';
import { roleOf, roles } from '../openai/messages.ts';
import { readCacheSalt } from '../openai/parse.ts';
import { readSamplingParams } from '../openai/sampling.ts';
import { schemaStructure } from '../openai/structured.ts';
import { chosenTools, readToolList } from '../openai/tools.ts';
import { readKeepAlive } from './keep-alive.ts';

/** A request for no text: the model is loaded, or unloaded. */
export interface ModelOrder {
  readonly kind: 'load' | 'unload';
  readonly model: string | undefined;
}

/** `/api/chat`. A request without messages is an order about the model. */
export function chatOfOllama(body: unknown, limits: ParseLimits): ModelOrder | ParsedChat {
  const reader = bodyReader(body, limits);
  const messages = withIds(reader.objects('messages', readMessage) ?? []);
  const asked = readCommon(reader, limits);
  // Only conversations have tools.
  const tools = messages.length === 0 ? [] : readToolList(reader);
  const unknown = reader.finish();
  if (messages.length === 0) return orderOf(asked);
  const { maxModelLen } = limits;
  if (messages.length > maxModelLen)
    throw reader.invalid('messages', `a list with a length from 1 to ${maxModelLen}`, `${messages.length} items`);
  return chatOf(asked, messages, tools, unknown);
}

/**
 * `/api/generate`: with `raw` or `suffix` a completion of the prompt, else an answer to it. A request without a prompt is an order about
 * the model, also with a suffix.
 */
export function generateOfOllama(body: unknown, limits: ParseLimits): ModelOrder | ParsedChat | ParsedCompletion {
  const reader = bodyReader(body, limits);
  const prompt = reader.string('prompt') ?? '';
  // Ollama's client for Go sends the empty texts too.
  const [suffix, system, template] = ['suffix', 'system', 'template'].map((name) => reader.string(name) || undefined);
  const isRaw = reader.boolean('raw') ?? false;
  const context = reader.raw('context', shapes.integers);
  refuseImages(reader);
  const asked = readCommon(reader, limits);
  const unknown = reader.finish();
  if (prompt === '') return orderOf(asked);
  if (isRaw) refuseWithRaw(reader, withoutUndefined({ system, template, context }));
  const ignored = [...Object.keys(withoutUndefined({ template, context })), ...unknown];
  if (!isRaw && suffix === undefined) {
    const messages = [
      ...(system === undefined ? [] : [{ role: 'system', content: system }]),
      { role: 'user', content: prompt },
    ];
    return chatOf(asked, messages, [], ignored);
  }
  const { generation, structure } = asked;
  const grammar = structure && structuredSource(structure.outputs, structure.parameter);
  return {
    ...generation,
    ...withoutUndefined({ structure, suffix, grammar }),
    prompts: [prompt],
    echo: false,
    addSpecial: true,
    ignored: [...generation.ignored, ...ignored],
  };
}

/** The answer goes on where the last message ends, if that is an answer without calls. */
function chatOf(
  { generation, structure, variables }: Common,
  messages: readonly ToolMessage[],
  tools: readonly Tool[],
  ignored: readonly string[],
): ParsedChat {
  const last = messages.at(-1);
  const continueFinalMessage = last?.role === 'assistant' && last.toolCalls === undefined;
  return {
    ...generation,
    ...withoutUndefined({ structure }),
    ...chosenTools(tools, 'auto', true),
    messages,
    addGenerationPrompt: !continueFinalMessage,
    continueFinalMessage,
    variables,
    addSpecial: false,
    ignored: [...generation.ignored, ...ignored],
  };
}

const orderOf = ({ generation: { model }, endsModel }: Common): ModelOrder => ({
  kind: endsModel ? 'unload' : 'load',
  model,
});

function refuseWithRaw(reader: FieldReader, given: object): void {
  const [first] = Object.keys(given);
  if (first !== undefined) throw reader.invalid(first, 'absent if `raw` is true');
}

/** `/api/embed`, in OpenAI's form. `input`: without an item, the request only loads the model. */
export function embeddingOfOllama(body: unknown, options?: BodyOptions): EmbeddingOfOllama {
  const reader = bodyReader(body, options);
  const input = reader.raw('input', shapes.text, shapes.texts) ?? [];
  const dimensions = reader.integer('dimensions', { min: 0 }) || undefined;
  const model = modelIn(reader);
  // As in Ollama, a text that is too long is cut by default.
  const truncate_prompt_tokens = reader.boolean('truncate') === false ? undefined : -1;
  readKeepAlive(reader);
  reader.ignore(['options']);
  reader.finish();
  return { input: input === '' ? [] : input, ...withoutUndefined({ model, dimensions, truncate_prompt_tokens }) };
}

export interface EmbeddingOfOllama {
  readonly input: unknown;
  readonly normalize?: false;
  readonly model?: string;
}

/** `/api/embeddings`, the older form for one text, whose vector Ollama does not normalise. */
export function oneEmbeddingOfOllama(body: unknown, options?: BodyOptions): EmbeddingOfOllama {
  const reader = bodyReader(body, options);
  const prompt = reader.string('prompt') ?? '';
  const model = modelIn(reader);
  readKeepAlive(reader);
  reader.ignore(['options']);
  reader.finish();
  return { input: prompt === '' ? [] : prompt, normalize: false, ...withoutUndefined({ model }) };
}

/** `/api/show`: the name of the model; older clients call the field `name`. */
export function showOfOllama(
  body: unknown,
  options?: BodyOptions,
): { readonly model?: string; readonly isVerbose: boolean } {
  const reader = bodyReader(body, options);
  const [model, isVerbose] = [modelIn(reader), reader.boolean('verbose') ?? false];
  reader.ignore(['system', 'template', 'options']);
  reader.finish();
  return { isVerbose, ...withoutUndefined({ model }) };
}

/** Ollama's names end with a tag, which is `latest` by default. Older clients call the field of orders `name`; those for Go send an empty one. */
export function modelIn(reader: FieldReader): string | undefined {
  const [model, name] = [reader.name('model'), reader.name('name')];
  return (model || name || undefined)?.replace(/:latest$/, '');
}

function readMessage(message: FieldReader): ToolMessage {
  const role = message.required('role', message.name('role'), '"system", "user", "assistant" or "tool"').toLowerCase();
  if (!roles.includes(role)) throw message.invalid('role', `one of ${roles.join(', ')}`);
  refuseImages(message);
  const calls = message.objects('tool_calls', readCall) ?? [];
  const id = message.name('tool_call_id');
  message.ignore(['tool_name', 'name']);
  const thinking = message.string('thinking');
  const content = message.string('content') ?? '';
  message.finish();
  return {
    role: roleOf(role),
    content,
    ...(role === 'tool' ? withoutUndefined({ tool_call_id: id }) : {}),
    ...(role === 'assistant' && calls.length > 0 ? { toolCalls: calls } : {}),
    ...withoutUndefined({ reasoning_content: thinking }),
  };
}

/** Ollama's calls have an object of arguments, and older clients send no id. */
function readCall(call: FieldReader): ToolCall {
  const called = call.required('function', call.object('function'), 'an object with name and arguments');
  const name = called.required('name', called.name('name'), 'the name of a tool');
  const given = called.exact('arguments', shapes.object) ?? {};
  if (!isJsonObject(given)) throw called.invalid('arguments', 'an object');
  return { id: call.name('id') ?? '', name, arguments: writeExactJson(given) };
}

/** Calls and results without an id belong together in their order. */
function withIds(messages: readonly ToolMessage[]): ToolMessage[] {
  let calls = 0;
  const waiting: string[] = [];
  return messages.map((message) => {
    if (message.toolCalls !== undefined) {
      const named = message.toolCalls.map((call) => ({ ...call, id: call.id === '' ? `call_${++calls}` : call.id }));
      waiting.splice(0, waiting.length, ...named.map(({ id }) => id));
      return { ...message, toolCalls: named };
    }
    if (message.role !== 'tool') return message;
    const next = waiting.shift();
    return { ...message, tool_call_id: message.tool_call_id ?? next ?? `call_${++calls}` };
  });
}

function refuseImages(reader: FieldReader): void {
  reader.refuse('images', (value) => Array.isArray(value) && value.length === 0, ' (the model reads text only)');
}

/** Options with another name in the API of OpenAI and vLLM. */
const renamedOptions: Readonly<Record<string, string>> = byName({
  repeat_penalty: 'repetition_penalty',
  num_predict: 'max_tokens',
});
const sameOptions = [
  ...['temperature', 'top_p', 'top_k', 'min_p', 'seed', 'stop', 'presence_penalty', 'frequency_penalty'],
  ...['max_tokens', 'repetition_penalty', 'cache_salt'],
];

/** What both endpoints have. */
interface Common {
  readonly generation: Omit<ParsedGeneration, 'addSpecial'>;
  readonly structure: AskedStructure | undefined;
  /** Of the template. */
  readonly variables: Readonly<Record<string, unknown>>;
  readonly endsModel: boolean;
}

function readCommon(reader: FieldReader, { vocabSize, unknownFields }: ParseLimits): Common {
  const model = modelIn(reader);
  const stream = reader.boolean('stream') ?? true;
  const format = reader.exact('format', shapes.text, shapes.object);
  const think = reader.raw('think', shapes.boolean, shapes.text);
  const hasLogprobs = reader.boolean('logprobs');
  const top = reader.integer('top_logprobs', { min: 0, max: 20 });
  const endsModel = readKeepAlive(reader);
  const { options, ignored } = readOptions(reader.json('options') ?? {});
  const given = bodyReader(options);
  const cacheSalt = readCacheSalt(given);
  const logprobs = hasLogprobs === true ? (top ?? 0) : undefined;
  const maxTokens = given.integer('max_tokens', { min: 1 });
  const generation = {
    ...withoutUndefined({ model, cacheSalt }),
    params: readSamplingParams(given, { logprobs, maxTokens }, vocabSize),
    stream,
    includeUsage: false,
    continuousUsage: false,
    isStrict: unknownFields === undefined,
    ignored,
    returnTokenIds: false,
  };
  const structure = format === undefined || format === '' ? undefined : structureOf(reader, format);
  return { generation, structure, variables: think === undefined ? {} : thinking(reader, think), endsModel };
}

/** The other options concern how Ollama loads models, or samplers that Kvasir does not have. */
function readOptions(given: Readonly<Record<string, unknown>>) {
  const options: Record<string, unknown> = byName();
  const ignored: string[] = [];
  for (const [name, value] of Object.entries(given)) {
    const known = renamedOptions[name] ?? (sameOptions.includes(name) ? name : undefined);
    if (value === null || saysNothing(name, value)) continue;
    if (known === undefined) ignored.push(`options.${name}`);
    else options[known] = value;
  }
  return { options, ignored };
}

/** Numbers by which Ollama has no limit of tokens, and draws the seed. */
const saysNothing = (name: string, value: unknown): boolean =>
  (name === 'num_predict' && Number(value) <= 0) || (name === 'seed' && Number(value) < 0);

const efforts = ['low', 'medium', 'high', 'max'];

function thinking(reader: FieldReader, think: unknown): Readonly<Record<string, unknown>> {
  if (typeof think === 'boolean') return { enable_thinking: think };
  if (efforts.includes(think as string)) return { reasoning_effort: think };
  throw reader.invalid('think', 'true, false, "low", "medium", "high" or "max"');
}

function structureOf(reader: FieldReader, format: unknown): AskedStructure {
  if (format === 'json') return { outputs: readStructuredOutputs({ jsonObject: true }), parameter: 'format' };
  if (isJsonObject(format)) return schemaStructure(format, 'format', undefined);
  throw reader.invalid('format', '"json" or a JSON schema');
}
