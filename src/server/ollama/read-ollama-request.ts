import { writeExactJson } from '../../base/exact-json.ts';
import { type FieldReader, shapes, withoutUndefined } from '../../base/field-reader.ts';
import { isJsonObject } from '../../base/json.ts';
import { type BodyOptions, bodyReader } from '../body-reader.ts';

/** A request of Ollama's API as a body for `parseChat` or `parseCompletion`, and the fields that have no effect. */
export interface BodyOfOllama {
  readonly body: Readonly<Record<string, unknown>>;
  readonly ignored: readonly string[];
}

/** `/api/chat`. */
export function chatOfOllama(body: unknown, options?: BodyOptions): BodyOfOllama {
  const reader = bodyReader(body, options);
  const messages = reader.required('messages', reader.objects('messages', readMessage), 'a list of messages');
  const tools = reader.raw('tools', shapes.list);
  const { fields, ignored } = readCommon(reader);
  const unknown = reader.finish();
  return {
    body: { ...fields, messages: withIds(messages), ...withoutUndefined({ tools }) },
    ignored: [...ignored, ...unknown],
  };
}

/**
 * `/api/generate`: with `raw` or `suffix` a completion of the prompt, else an answer to it. A request without a prompt asks for the model
 * to be loaded.
 */
export function generateOfOllama(
  body: unknown,
  options?: BodyOptions,
): BodyOfOllama & { readonly kind: 'chat' | 'completion' | 'load'; readonly model: string | undefined } {
  const reader = bodyReader(body, options);
  const prompt = reader.string('prompt') ?? '';
  const suffix = reader.string('suffix');
  const system = reader.string('system');
  const isRaw = reader.boolean('raw') ?? false;
  refuseImages(reader);
  const { fields, ignored } = readCommon(reader);
  const others = [...reader.ignore(['context', 'template']), ...reader.finish()];
  const all = { ignored: [...ignored, ...others], model: fields.model as string | undefined };
  if (prompt === '' && suffix === undefined) return { ...all, kind: 'load', body: fields };
  if (isRaw || (suffix !== undefined && suffix !== '')) {
    const { chat_template_kwargs: _, top_logprobs: top, logprobs, ...rest } = fields;
    const scores = logprobs === true ? { logprobs: top ?? 0 } : {};
    return { ...all, kind: 'completion', body: { ...rest, ...scores, prompt, ...withoutUndefined({ suffix }) } };
  }
  const messages = [
    ...(system === undefined || system === '' ? [] : [{ role: 'system', content: system }]),
    { role: 'user', content: prompt },
  ];
  return { ...all, kind: 'chat', body: { ...fields, messages } };
}

/** `/api/embed`, in OpenAI's form. */
export function embeddingOfOllama(body: unknown, options?: BodyOptions): object {
  const reader = bodyReader(body, options);
  const input = reader.required('input', reader.raw('input', shapes.text, shapes.texts), 'a text or a list of texts');
  const dimensions = reader.integer('dimensions', { min: 1 });
  const model = reader.name('model')?.replace(/:latest$/, '');
  // As in Ollama, a text that is too long is cut by default.
  const truncate_prompt_tokens = reader.boolean('truncate') === false ? undefined : -1;
  reader.ignore(['keep_alive', 'options']);
  reader.finish();
  return { input, ...withoutUndefined({ model, dimensions, truncate_prompt_tokens }) };
}

/** `/api/show`: the name of the model; older clients call the field `name`. */
export function modelOfOllama(body: unknown, options?: BodyOptions): string | undefined {
  const reader = bodyReader(body, options);
  const model = reader.name('model') ?? reader.name('name');
  reader.ignore(['verbose', 'name']);
  reader.finish();
  return model?.replace(/:latest$/, '');
}

interface Message {
  readonly role: string;
  readonly tool_calls?: readonly { readonly id: string }[];
  readonly [field: string]: unknown;
}

function readMessage(message: FieldReader): Message {
  const role = message.required('role', message.name('role'), '"system", "user", "assistant" or "tool"');
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
const renamedOptions: Readonly<Record<string, string>> = {
  repeat_penalty: 'repetition_penalty',
  num_predict: 'max_tokens',
};
const sameOptions = [
  ...['temperature', 'top_p', 'top_k', 'min_p', 'seed', 'stop', 'presence_penalty', 'frequency_penalty'],
  ...['max_tokens', 'repetition_penalty', 'cache_salt'],
];

/** The fields of both endpoints, with names of OpenAI and vLLM. */
function readCommon(reader: FieldReader): { readonly fields: Record<string, unknown>; readonly ignored: string[] } {
  const model = reader.name('model')?.replace(/:latest$/, '');
  const stream = reader.boolean('stream') ?? true;
  const format = reader.exact('format', shapes.text, shapes.object);
  const think = reader.raw('think', shapes.boolean, shapes.text);
  const logprobs = reader.boolean('logprobs');
  const top = reader.integer('top_logprobs', { min: 0 });
  reader.ignore(['keep_alive']);
  const given = reader.json('options') ?? {};
  const { options, ignored } = readOptions(given);
  const fields = {
    ...options,
    stream,
    ...withoutUndefined({ model, logprobs: logprobs ?? (top === undefined ? undefined : true), top_logprobs: top }),
    ...(think === undefined ? {} : thinking(reader, think)),
    ...(format === undefined || format === '' ? {} : { response_format: responseFormat(reader, format) }),
  };
  return { fields, ignored };
}

/** The other options concern how Ollama loads models, or samplers that Kvasir does not have. */
function readOptions(given: Readonly<Record<string, unknown>>) {
  const options: Record<string, unknown> = {};
  const ignored: string[] = [];
  for (const [name, value] of Object.entries(given)) {
    const known = renamedOptions[name] ?? (sameOptions.includes(name) ? name : undefined);
    if (known === undefined) ignored.push(`options.${name}`);
    // -1 and -2: as many as there is room for.
    else if (known !== 'max_tokens' || !(Number(value) < 0)) options[known] = value;
  }
  return { options, ignored };
}

function thinking(reader: FieldReader, think: unknown): object {
  if (typeof think === 'boolean') return { chat_template_kwargs: { enable_thinking: think } };
  if (typeof think === 'string') return { reasoning_effort: think };
  throw reader.invalid('think', 'true, false, "low", "medium" or "high"');
}

function responseFormat(reader: FieldReader, format: unknown): object {
  if (format === 'json') return { type: 'json_object' };
  if (isJsonObject(format)) return { type: 'json_schema', json_schema: { name: 'format', schema: format } };
  throw reader.invalid('format', '"json" or a JSON schema');
}
