import { describeValue } from '../../../base/describe-value.ts';
import { type FieldReader, shapes } from '../../../base/field-reader.ts';
import { isJsonObject, type JsonObject } from '../../../base/json.ts';
import { logprobsMax } from '../../../core/sampling-parse.ts';
import { readVerbosity } from '../openai/field-lists.ts';
import type { RequestEcho } from './response-types.ts';

/** The fields of a request that a response repeats and that are read here, besides those of tools and of sampling. */
export type OwnEcho = Omit<RequestEcho, EchoOfTools | EchoOfSampling>;
type EchoOfTools = 'tools' | 'tool_choice' | 'parallel_tool_calls';
type EchoOfSampling = 'temperature' | 'top_p' | 'presence_penalty' | 'frequency_penalty';

export interface OwnFields {
  readonly echo: OwnEcho;
  /** The same fields under the names of a chat request. */
  readonly chat: JsonObject;
  /** Fields that were set and have no effect. */
  readonly ignored: readonly string[];
}

export function readOwnFields(reader: FieldReader): OwnFields {
  const store = reader.boolean('store') ?? true;
  const background = reader.boolean('background') ?? false;
  if (background && !store) throw reader.invalid('background', 'false if `store` is false', 'true');
  const text = readTextOptions(reader);
  const reasoning = readReasoning(reader);
  const include = readInclude(reader);
  const top = reader.integer('top_logprobs', { min: 0, max: logprobsMax }) ?? 0;
  const maxTokens = reader.integer('max_output_tokens', { min: 1 });
  return {
    echo: {
      background,
      instructions: reader.string('instructions') ?? null,
      max_output_tokens: maxTokens ?? null,
      max_tool_calls: reader.integer('max_tool_calls', { min: 1 }) ?? null,
      metadata: readMetadata(reader),
      previous_response_id: reader.name('previous_response_id') ?? null,
      prompt_cache_key: reader.name('prompt_cache_key') ?? null,
      reasoning: reasoning.echo,
      safety_identifier: reader.name('safety_identifier') ?? null,
      service_tier: 'default',
      store,
      text: text.echo,
      top_logprobs: top,
      truncation: readTruncation(reader),
      user: reader.name('user') ?? null,
    },
    chat: {
      ...text.chat,
      ...(reasoning.echo.effort === null ? {} : { reasoning_effort: reasoning.echo.effort }),
      ...(include.logprobs || top > 0 ? { logprobs: true, top_logprobs: top } : {}),
      ...(maxTokens === undefined ? {} : { max_completion_tokens: maxTokens }),
    },
    ignored: [...text.ignored, ...reasoning.ignored, ...include.ignored],
  };
}

/** OpenAI's limits. */
const metadataMax = { pairs: 16, key: 64, value: 512 } as const;

function readMetadata(reader: FieldReader): Readonly<Record<string, string>> {
  const value = reader.raw('metadata', shapes.object);
  if (value === undefined) return {};
  const { pairs, key: keyMax, value: valueMax } = metadataMax;
  const expected = `an object of at most ${pairs} texts of at most ${valueMax} characters, with names of at most ${keyMax}`;
  const isText = (text: unknown): text is string => typeof text === 'string' && text.length <= valueMax;
  if (!isJsonObject(value)) throw reader.invalid('metadata', expected);
  const entries = Object.entries(value);
  if (entries.length > pairs) throw reader.invalid('metadata', expected, `${entries.length} fields`);
  const wrong = entries.find(([key, text]) => key.length > keyMax || !isText(text));
  if (wrong !== undefined) throw reader.invalid('metadata', expected, `${describeValue(wrong[1])} for a name`);
  return value as Readonly<Record<string, string>>;
}

const includable = [
  ...['file_search_call.results', 'web_search_call.results', 'web_search_call.action.sources'],
  ...['message.input_image.image_url', 'computer_call_output.output.image_url', 'code_interpreter_call.outputs'],
  ...['reasoning.encrypted_content', 'message.output_text.logprobs'],
];

/** Parts of outputs that no response here has, such as results of searches, are not there to be included. */
function readInclude(reader: FieldReader): { readonly logprobs: boolean; readonly ignored: readonly string[] } {
  const names = reader.list('include', (item, name) => {
    const text = reader.wellFormed(name, item);
    if (!includable.includes(text)) throw reader.invalid(name, `one of ${includable.join(', ')}`, describeValue(text));
    return text;
  });
  return {
    logprobs: names?.includes('message.output_text.logprobs') ?? false,
    ignored: names?.includes('reasoning.encrypted_content') === true ? ['include: reasoning.encrypted_content'] : [],
  };
}

function readReasoning(reader: FieldReader): {
  readonly echo: RequestEcho['reasoning'];
  readonly ignored: readonly string[];
} {
  const fields = reader.object('reasoning');
  const effort = fields?.name('effort') ?? null;
  const summary = fields?.name('summary') ?? fields?.name('generate_summary') ?? null;
  const foreign = fields?.ignore(['summary', 'generate_summary', 'context']) ?? [];
  fields?.refuse('mode', (value) => value === 'standard');
  fields?.finish();
  // The reasoning itself is in the output, so it needs no summary.
  return { echo: { effort, summary }, ignored: foreign.map((name) => `reasoning.${name}`) };
}

interface TextOptions {
  readonly echo: JsonObject;
  readonly chat: JsonObject;
  readonly ignored: readonly string[];
}

/** `text.format` is the `response_format` of a chat, without the object inside a schema's. */
function readTextOptions(reader: FieldReader): TextOptions {
  const fields = reader.object('text');
  const format = fields?.json('format') ?? { type: 'text' };
  const ignored = fields === undefined ? [] : readVerbosity(fields).map((name) => `text.${name}`);
  const { type, ...rest } = format;
  if (type === 'text') fields?.inside('format', rest).finish();
  fields?.finish();
  if (type === 'text') return { echo: { format }, chat: {}, ignored };
  const chatFormat: JsonObject = type === 'json_schema' ? { type, json_schema: rest } : format;
  return { echo: { format }, chat: { response_format: chatFormat }, ignored };
}

function readTruncation(reader: FieldReader): 'auto' | 'disabled' {
  return reader.choice('truncation', ['auto', 'disabled']) ?? 'disabled';
}
