import { byName } from '../../base/by-name.ts';
import { writeExactJson } from '../../base/exact-json.ts';
import { type FieldReader, shapes, withoutUndefined } from '../../base/field-reader.ts';
import { isJsonObject } from '../../base/json.ts';
import { type BodyOptions, bodyReader } from '../body-reader.ts';
import { readKeepAlive } from './keep-alive.ts';

/** A request of Ollama's API as a body for `parseChat` or `parseCompletion`, and the fields that have no effect. */
export interface BodyOfOllama {
  readonly body: Readonly<Record<string, unknown>>;
  readonly ignored: readonly string[];
}

/** A request for no text: the model is loaded, or unloaded. */
export interface ModelOrder {
  readonly kind: 'load' | 'unload';
  readonly model: string | undefined;
}

/** `/api/chat`. A request without messages is an order about the model. */
export function chatOfOllama(
  body: unknown,
  options?: BodyOptions,
): ModelOrder | (BodyOfOllama & { readonly kind: 'chat' }) {
  const reader = bodyReader(body, options);
  const messages = reader.objects('messages', readMessage) ?? [];
  const tools = reader.raw('tools', shapes.list);
  const { fields, ignored, model, endsModel } = readCommon(reader);
  const unknown = reader.finish();
  if (messages.length === 0) return orderOf(model, endsModel);
  const chat = { ...fields, messages: withIds(messages), ...withoutUndefined({ tools }) };
  const { role, tool_calls } = messages.at(-1)!;
  // The answer goes on where the last message ends.
  const continued = role === 'assistant' && tool_calls === undefined;
  return {
    kind: 'chat',
    body: continued ? { ...chat, continue_final_message: true, add_generation_prompt: false } : chat,
    ignored: [...ignored, ...unknown],
  };
}

/**
 * `/api/generate`: with `raw` or `suffix` a completion of the prompt, else an answer to it. A request without a prompt is an order about
 * the model, also with a suffix.
 */
export function generateOfOllama(
  body: unknown,
  options?: BodyOptions,
): ModelOrder | (BodyOfOllama & { readonly kind: 'chat' }) | (BodyOfOllama & { readonly kind: 'completion' }) {
  const reader = bodyReader(body, options);
  const prompt = reader.string('prompt') ?? '';
  // Ollama's client for Go sends the empty texts too.
  const [suffix, system, template] = ['suffix', 'system', 'template'].map((name) => reader.string(name) || undefined);
  const isRaw = reader.boolean('raw') ?? false;
  const context = reader.raw('context', shapes.integers);
  refuseImages(reader);
  const { fields, ignored: others, model, endsModel } = readCommon(reader);
  const unknown = reader.finish();
  if (prompt === '') return orderOf(model, endsModel);
  if (isRaw) refuseWithRaw(reader, withoutUndefined({ system, template, context }));
  const ignored = [...others, ...Object.keys(withoutUndefined({ template, context })), ...unknown];
  if (isRaw || suffix !== undefined) {
    const { chat_template_kwargs: _, top_logprobs: top, logprobs, ...rest } = fields;
    const scores = logprobs === true ? { logprobs: top ?? 0 } : {};
    return { ignored, kind: 'completion', body: { ...rest, ...scores, prompt, ...withoutUndefined({ suffix }) } };
  }
  const messages = [
    ...(system === undefined ? [] : [{ role: 'system', content: system }]),
    { role: 'user', content: prompt },
  ];
  return { ignored, kind: 'chat', body: { ...fields, messages } };
}

const orderOf = (model: string | undefined, isEnd: boolean): ModelOrder => ({ kind: isEnd ? 'unload' : 'load', model });

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

interface Message {
  readonly role: string;
  readonly tool_calls?: readonly { readonly id: string }[];
  readonly [field: string]: unknown;
}

function readMessage(message: FieldReader): Message {
  const role = message.required('role', message.name('role'), '"system", "user", "assistant" or "tool"').toLowerCase();
  refuseImages(message);
  const calls = message.objects('tool_calls', readCall);
  const id = message.name('tool_call_id');
  message.ignore(['tool_name', 'name']);
  const thinking = message.string('thinking');
  const content = message.string('content') ?? '';
  message.finish();
  return {
    role,
    content,
    ...withoutUndefined({ reasoning_content: thinking, tool_call_id: id }),
    ...(calls === undefined || calls.length === 0 ? {} : { tool_calls: calls }),
  };
}

/** Ollama's calls have an object of arguments, and older clients send no id. */
function readCall(call: FieldReader) {
  const called = call.required('function', call.object('function'), 'an object with name and arguments');
  const name = called.required('name', called.name('name'), 'the name of a tool');
  const given = called.exact('arguments', shapes.object) ?? {};
  if (!isJsonObject(given)) throw called.invalid('arguments', 'an object');
  return { id: call.name('id') ?? '', type: 'function', function: { name, arguments: writeExactJson(given) } };
}

/** Calls and results without an id belong together in their order. */
function withIds(messages: readonly Message[]): Message[] {
  let calls = 0;
  const waiting: string[] = [];
  return messages.map((message) => {
    if (message.tool_calls !== undefined) {
      const named = message.tool_calls.map((call) => ({ ...call, id: call.id === '' ? `call_${++calls}` : call.id }));
      waiting.splice(0, waiting.length, ...named.map(({ id }) => id));
      return { ...message, tool_calls: named };
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

/** The fields of both endpoints, with names of OpenAI and vLLM. */
function readCommon(reader: FieldReader) {
  const model = modelIn(reader);
  const stream = reader.boolean('stream') ?? true;
  const format = reader.exact('format', shapes.text, shapes.object);
  const think = reader.raw('think', shapes.boolean, shapes.text);
  const logprobs = reader.boolean('logprobs');
  const top_logprobs = reader.integer('top_logprobs', { min: 0, max: 20 });
  const endsModel = readKeepAlive(reader);
  const given = reader.json('options') ?? {};
  const { options, ignored } = readOptions(given);
  const fields: Readonly<Record<string, unknown>> = byName({
    ...options,
    stream,
    ...withoutUndefined({ model }),
    ...(logprobs === true ? { logprobs, ...withoutUndefined({ top_logprobs }) } : {}),
    ...(think === undefined ? {} : thinking(reader, think)),
    ...(format === undefined || format === '' ? {} : { response_format: responseFormat(reader, format) }),
  });
  return { fields, ignored, model, endsModel };
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

function thinking(reader: FieldReader, think: unknown): object {
  if (typeof think === 'boolean') return { chat_template_kwargs: { enable_thinking: think } };
  if (efforts.includes(think as string)) return { reasoning_effort: think };
  throw reader.invalid('think', 'true, false, "low", "medium", "high" or "max"');
}

function responseFormat(reader: FieldReader, format: unknown): object {
  if (format === 'json') return { type: 'json_object' };
  if (isJsonObject(format)) return { type: 'json_schema', json_schema: { name: 'format', schema: format } };
  throw reader.invalid('format', '"json" or a JSON schema');
}
