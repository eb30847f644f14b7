import { isJsonObject, type JsonObject } from '../base/json.ts';
import { promptEmpty, promptTooLong } from '../core/errors.ts';
import type { SamplingOptions } from '../core/sampling.ts';
import { logprobsMax } from '../core/sampling-parse.ts';
import { describeValue } from '../core/sampling-read.ts';
import type { ToolMessage } from '../tools/template-messages.ts';
import type { Tool } from '../tools/tool.ts';
import { FieldReader, isObject, withoutUndefined } from './field-reader.ts';
import { foreignFields } from './foreign-fields.ts';
import { readMessages } from './openai-messages.ts';
import { readSamplingParams } from './openai-sampling.ts';
import { readTools } from './openai-tools.ts';
import { fieldNotSupported, tooManyChoices } from './server-errors.ts';

/** Limits of a request, from the model and the server's options. */
export interface ParseLimits {
  readonly vocabSize: number;
  /** Longer prompts, and conversations of more messages, are refused before they are read. */
  readonly maxModelLen: number;
  /** The largest number of prompts times `n` in one request. */
  readonly choicesMax: number;
}

/** The fields that both endpoints have. */
export interface ParsedGeneration {
  /** If absent, the request accepts any model. */
  readonly model?: string;
  /** Without `maxTokens` if the endpoint's default applies. */
  readonly params: SamplingOptions;
  readonly stream: boolean;
  /** The stream ends with a chunk that has the usage. */
  readonly includeUsage: boolean;
  /** Every chunk has the usage so far (vLLM). */
  readonly continuousUsage: boolean;
  /** Fields of other servers that were set and have no effect. */
  readonly ignored: readonly string[];
  readonly returnTokenIds: boolean;
  readonly addSpecial: boolean;
  readonly cacheSalt?: string;
  readonly priority?: number;
  /** Parameters for the connector. */
  readonly kvTransferParams?: JsonObject;
}

export interface ParsedCompletion extends ParsedGeneration {
  /** Texts or tokens; at least one. */
  readonly prompts: readonly (string | Int32Array)[];
  readonly echo: boolean;
}

export interface ParsedChat extends ParsedGeneration, ParsedConversation {
  /** False: at most one call of a tool for each answer. */
  readonly areParallel: boolean;
}

export interface ParsedConversation {
  readonly messages: readonly ToolMessage[];
  /** Functions that the model may call. */
  readonly tools: readonly Tool[];
  readonly addGenerationPrompt: boolean;
  /** Further inputs of the template. */
  readonly variables: Readonly<Record<string, unknown>>;
}

export function parseCompletion(body: unknown, limits: ParseLimits): ParsedCompletion {
  const reader = new FieldReader(body);
  const prompts = readPrompts(reader, limits);
  const echo = reader.boolean('echo') ?? false;
  const logprobs = reader.integer('logprobs', { min: 0, max: logprobsMax });
  if (echo && logprobs !== undefined) {
    throw fieldNotSupported({ parameter: 'echo', detail: ' together with `logprobs`' });
  }
  const maxTokens = reader.integer('max_tokens', { min: 1 });
  const generation = readGeneration(reader, limits, { logprobs, maxTokens }, { addSpecial: true });
  reader.refuse('best_of', (value) => value === 1);
  reader.refuse('suffix', (value) => value === '');
  reader.finish();
  checkChoices(prompts.length, generation, limits);
  return { ...generation, prompts, echo };
}

export function parseChat(body: unknown, limits: ParseLimits): ParsedChat {
  const reader = new FieldReader(body);
  const { areParallel, ...conversation } = readConversation(reader, limits);
  const wanted = reader.boolean('logprobs') ?? false;
  const top = reader.integer('top_logprobs', { min: 0, max: logprobsMax });
  if (top !== undefined && top > 0 && !wanted) {
    throw reader.invalid('top_logprobs', 'absent unless `logprobs` is true', describeValue(top));
  }
  const olderName = reader.integer('max_tokens', { min: 1 });
  const maxTokens = reader.integer('max_completion_tokens', { min: 1 }) ?? olderName;
  const logprobs = wanted ? (top ?? 0) : undefined;
  const generation = readGeneration(reader, limits, { logprobs, maxTokens }, { addSpecial: false });
  reader.refuse('function_call', (value) => value === 'none' || value === 'auto');
  reader.refuse('modalities', (value) => Array.isArray(value) && value.length === 1 && value[0] === 'text');
  for (const name of CHAT_ONLY_REFUSED) reader.refuse(name, asksForNothing);
  reader.finish();
  checkChoices(1, generation, limits);
  return { ...generation, ...conversation, areParallel };
}

const CHAT_ONLY_REFUSED = ['functions', 'audio', 'prediction', 'web_search_options', 'verbosity', 'documents', 'echo'];

function readConversation(
  reader: FieldReader,
  { maxModelLen }: ParseLimits,
): ParsedConversation & { readonly areParallel: boolean } {
  const messages = readMessages(reader, maxModelLen);
  const tools = readTools(reader);
  const addGenerationPrompt = reader.boolean('add_generation_prompt') ?? true;
  const given = reader.raw('chat_template_kwargs') ?? {};
  if (!isObject(given)) throw reader.invalid('chat_template_kwargs', 'an object', describeValue(given));
  const variables = { ...effortVariables(reader), ...given };
  reader.refuse('continue_final_message', asksForNothing);
  reader.refuse('chat_template', asksForNothing, ': a template is chosen with --chat-template at start');
  return { messages, ...tools, addGenerationPrompt, variables };
}

const efforts = ['none', 'minimal', 'low', 'medium', 'high', 'xhigh'];

/** Names that templates read, as in vLLM. A template without them has no effort to choose. */
function effortVariables(reader: FieldReader): Readonly<Record<string, unknown>> {
  const effort = reader.string('reasoning_effort');
  if (effort === undefined) return {};
  if (!efforts.includes(effort)) {
    throw reader.invalid('reasoning_effort', `one of ${efforts.join(', ')}`, describeValue(effort));
  }
  return effort === 'none' ? { enable_thinking: false } : { reasoning_effort: effort };
}

/** Fields of OpenAI and vLLM that do not change the text here. */
const HARMLESS = [
  'user',
  'metadata',
  'store',
  'service_tier',
  'safety_identifier',
  'prompt_cache_key',
  'prompt_cache_retention',
  'request_id',
  'spaces_between_special_tokens',
];

/** Fields of OpenAI and vLLM that would change the text and are not supported. */
const REFUSED = [
  'use_beam_search',
  'prompt_logprobs',
  'allowed_token_ids',
  'bad_words',
  'truncate_prompt_tokens',
  'structured_outputs',
  'guided_json',
  'guided_regex',
  'guided_choice',
  'guided_grammar',
  'logits_processors',
];

function readGeneration(
  reader: FieldReader,
  limits: ParseLimits,
  perEndpoint: { readonly logprobs: number | undefined; readonly maxTokens: number | undefined },
  defaults: { readonly addSpecial: boolean },
): ParsedGeneration {
  const stream = reader.boolean('stream') ?? false;
  const streamOptions = reader.object('stream_options');
  if (streamOptions !== undefined && !stream) {
    throw reader.invalid('stream_options', 'absent unless `stream` is true', 'an object');
  }
  const includeUsage = streamOptions?.boolean('include_usage') ?? false;
  const continuousUsage = streamOptions?.boolean('continuous_usage_stats') ?? false;
  streamOptions?.ignore(['include_obfuscation']);
  streamOptions?.finish();
  const cacheSalt = reader.string('cache_salt');
  if (cacheSalt === '') throw reader.invalid('cache_salt', 'a non-empty string', '""');
  const params = readSamplingParams(reader, perEndpoint, limits.vocabSize);
  reader.ignore(HARMLESS);
  const ignored = reader.ignoreForeign(foreignFields);
  reader.refuse('response_format', (value) => isObject(value) && value.type === 'text', ' but for {"type":"text"}');
  reader.refuse('length_penalty', (value) => value === 1);
  for (const name of REFUSED) reader.refuse(name, asksForNothing);
  return {
    ...withoutUndefined({
      model: reader.string('model'),
      cacheSalt,
      priority: readPriority(reader),
      kvTransferParams: readKvTransferParams(reader),
    }),
    params,
    ignored,
    stream,
    includeUsage,
    continuousUsage,
    returnTokenIds: reader.boolean('return_token_ids') ?? false,
    addSpecial: reader.boolean('add_special_tokens') ?? defaults.addSpecial,
  };
}

function readPriority(reader: FieldReader): number | undefined {
  return reader.integer('priority', { min: -(2 ** 31), max: 2 ** 31 - 1 });
}

function readKvTransferParams(reader: FieldReader): JsonObject | undefined {
  const value = reader.raw('kv_transfer_params');
  if (value === undefined || isJsonObject(value)) return value;
  throw reader.invalid('kv_transfer_params', 'an object', describeValue(value));
}

function readPrompts(reader: FieldReader, limits: ParseLimits): (string | Int32Array)[] {
  const expected = 'a string, a list of strings, a list of token ids, or a list of such lists';
  const value = reader.required('prompt', reader.raw('prompt'), expected);
  if (typeof value === 'string') return [reader.text('prompt', value)];
  if (!Array.isArray(value)) throw reader.invalid('prompt', expected, describeValue(value));
  const first: unknown = value[0];
  if (first === undefined) throw promptEmpty();
  if (typeof first === 'number') return [readPromptTokens(reader, value, 'prompt', limits)];
  // Checked before the prompts are read, so that a list of a million prompts is refused at once.
  if (value.length > limits.choicesMax) throw tooManyChoices({ prompts: value.length, n: 1, limit: limits.choicesMax });
  return value.map((item: unknown, i) => {
    const name = `prompt[${i}]`;
    if (!Array.isArray(first)) return reader.text(name, item);
    if (!Array.isArray(item)) throw reader.invalid(name, 'a list of token ids', describeValue(item));
    return readPromptTokens(reader, item, name, limits);
  });
}

/** The length is checked first, so that a list that is too long is not read. */
function readPromptTokens(reader: FieldReader, items: readonly unknown[], name: string, limits: ParseLimits) {
  const { maxModelLen } = limits;
  if (items.length >= maxModelLen) {
    throw promptTooLong({ promptTokens: items.length, maxTokens: 1, maxModelLen });
  }
  return readTokens(reader, items, name, limits);
}

function readTokens(reader: FieldReader, items: readonly unknown[], name: string, limits: ParseLimits): Int32Array {
  const tokens = new Int32Array(items.length);
  for (let i = 0; i < items.length; i++) {
    const item = items[i];
    if (!Number.isInteger(item) || (item as number) < 0 || (item as number) >= limits.vocabSize) {
      throw reader.invalid(`${name}[${i}]`, `a token id from 0 to ${limits.vocabSize - 1}`, describeValue(item));
    }
    tokens[i] = item as number;
  }
  return tokens;
}

function checkChoices(prompts: number, generation: ParsedGeneration, limits: ParseLimits): void {
  const n = generation.params.n ?? 1;
  if (prompts * n > limits.choicesMax) throw tooManyChoices({ prompts, n, limit: limits.choicesMax });
}

/** `null` counts as absent before this. */
function asksForNothing(value: unknown): boolean {
  if (Array.isArray(value)) return value.length === 0;
  return value === false || value === '' || (isObject(value) && Object.keys(value).length === 0);
}

export interface ParsedTokenize {
  readonly model?: string;
  readonly addSpecial: boolean;
  readonly tokenStrings: boolean;
  readonly input: string | ParsedConversation;
}

/** The body of vLLM's `/tokenize`: `{prompt}` or `{messages}`. */
export function parseTokenize(body: unknown, limits: ParseLimits): ParsedTokenize {
  const reader = new FieldReader(body);
  const isChat = reader.raw('messages') !== undefined;
  const input = isChat
    ? readConversation(reader, limits)
    : reader.required('prompt', reader.string('prompt'), 'a string (or `messages`, a list of messages)');
  const addSpecial = reader.boolean('add_special_tokens') ?? !isChat;
  const tokenStrings = reader.boolean('return_token_strs') ?? false;
  const model = reader.string('model');
  reader.finish();
  return { ...withoutUndefined({ model }), addSpecial, tokenStrings, input };
}

export interface ParsedDetokenize {
  readonly model?: string;
  readonly tokens: Int32Array;
}

export function parseDetokenize(body: unknown, limits: ParseLimits): ParsedDetokenize {
  const reader = new FieldReader(body);
  const value = reader.required('tokens', reader.raw('tokens'), 'a list of token ids');
  if (!Array.isArray(value)) throw reader.invalid('tokens', 'a list of token ids', describeValue(value));
  const { maxModelLen } = limits;
  if (value.length > maxModelLen) {
    throw reader.invalid('tokens', `a list of at most ${maxModelLen} token ids`, `${value.length} ids`);
  }
  const tokens = readTokens(reader, value, 'tokens', limits);
  const model = reader.string('model');
  reader.finish();
  return { ...withoutUndefined({ model }), tokens };
}
