import { describeValue } from '../../../base/describe-value.ts';
import { type FieldReader, nameLengthMax, shapes, withoutUndefined } from '../../../base/field-reader.ts';
import type { JsonObject } from '../../../base/json.ts';
import { promptEmpty, tooManyTokens } from '../../../core/errors.ts';
import { type CheckedSampling, logprobsMax } from '../../../core/sampling-parse.ts';
import type { AskedStructure } from '../../../core/structured-outputs.ts';
import type { Conversation } from '../../../engine/chat/conversation.ts';
import { structuredSource } from '../../../grammar/structured-grammar.ts';
import type { ToolMessage } from '../../../tools/template-messages.ts';
import type { ParsedChat, ParsedCompletion, ParsedGeneration, ParseLimits } from '../../generation/request.ts';
import { bodyReader, ignoreSmall } from '../../http/body-reader.ts';
import { tooManyChoices } from '../../http/server-errors.ts';
import {
  asksForNothing,
  harmlessFields,
  readVerbosity,
  refuseUnsupported,
  refuseUnsupportedInChats,
} from './field-lists.ts';
import { foreignFields } from './foreign-fields.ts';
import { readMessages } from './messages.ts';
import { readPromptLogprobs } from './prompt-logprobs.ts';
import { readBestOf } from './read-best-of.ts';
import { type PerEndpoint, readSamplingParams } from './sampling.ts';
import { readStructure } from './structured.ts';
import { type ParsedTools, readTools } from './tools.ts';

export const parseCompletion = (body: unknown, limits: ParseLimits): ParsedCompletion =>
  readCompletion(bodyReader(body, limits), limits);

export interface OwnCompletionFields extends OwnFields {
  readonly prompts: readonly (string | Int32Array)[];
  readonly maxTokens: number | undefined;
}

/** Reads a completion, but for what is `own`. */
export function readCompletion(reader: FieldReader, limits: ParseLimits, own?: OwnCompletionFields): ParsedCompletion {
  const prompts = own?.prompts ?? readPrompts(reader, limits);
  const echo = reader.boolean('echo') ?? false;
  const logprobs = reader.integer('logprobs', { min: 0, max: logprobsMax });
  const promptLogprobs = readPromptLogprobs(reader);
  // Without output, only results of the prompt are left to ask for.
  const maxTokens =
    own === undefined ? readMaxTokens(reader, echo || promptLogprobs !== undefined ? 0 : 1) : own.maxTokens;
  const echoedLogprobs = echo ? logprobs : undefined;
  const perEndpoint = { logprobs, promptLogprobs, echoedLogprobs, maxTokens };
  const generation = readGeneration(reader, limits, perEndpoint, { addSpecial: true, ...own });
  const chosen = readBestOf(reader, generation.params, generation.stream);
  const suffix = readSuffix(reader, echo);
  reader.refuse('prompt_embeds', asksForNothing);
  const unknown = reader.finish();
  checkChoices(prompts.length, chosen.params, limits, chosen.bestOf === undefined ? 'n' : 'best_of');
  const { structure } = generation;
  const grammar = structure && structuredSource(structure.outputs, structure.parameter);
  const ignored = [...generation.ignored, ...unknown];
  return { ...generation, ...chosen, ignored, prompts, echo, ...withoutUndefined({ suffix, grammar }) };
}

function readSuffix(reader: FieldReader, echo: boolean): string | undefined {
  const suffix = reader.string('suffix');
  if (suffix === undefined || suffix === '') return undefined;
  if (echo) throw reader.invalid('suffix', 'absent if `echo` is true');
  return suffix;
}

export const parseChat = (body: unknown, limits: ParseLimits): ParsedChat => readChat(bodyReader(body, limits), limits);

/** What a request of another API says in its own way. The other fields are those of OpenAI's and vLLM's requests. */
export interface OwnFields {
  readonly stop?: unknown;
  readonly structure?: AskedStructure | undefined;
  readonly repetitionPenalty?: number | undefined;
}

export interface OwnChatFields extends OwnFields {
  readonly messages: readonly ToolMessage[];
  readonly tools: ParsedTools;
  readonly effort?: string | undefined;
  readonly variables?: Readonly<Record<string, unknown>> | undefined;
  /** The answer goes on where the last message ends. */
  readonly continuesAnswer: boolean;
}

/** Reads a chat, but for what is `own`. The known fields of the reader's object are those of both. */
export function readChat(reader: FieldReader, limits: ParseLimits, own?: OwnChatFields): ParsedChat {
  const { areParallel, requiredTools, ...conversation } = readConversation(reader, limits, own);
  const wanted = reader.boolean('logprobs') ?? false;
  const top = reader.integer('top_logprobs', { min: 0, max: logprobsMax });
  if (top !== undefined && top > 0 && !wanted) {
    throw reader.invalid('top_logprobs', 'absent unless `logprobs` is true');
  }
  const maxTokens = readMaxTokens(reader, 1);
  const logprobs = wanted ? (top ?? 0) : undefined;
  const promptLogprobs = readPromptLogprobs(reader);
  const perEndpoint = { logprobs, promptLogprobs, maxTokens };
  const generation = readGeneration(reader, limits, perEndpoint, { addSpecial: false, ...own });
  refuseUnsupportedInChats(reader);
  reader.ignore(['media_io_kwargs']);
  const ignored = [...generation.ignored, ...readVerbosity(reader), ...reader.finish()];
  checkChoices(1, generation.params, limits);
  return {
    ...generation,
    ignored,
    ...conversation,
    areParallel,
    ...(requiredTools === undefined ? {} : { requiredTools }),
  };
}

/** Completions have the newer name too: llm-d's routing sidecar sends both names to both endpoints. */
function readMaxTokens(reader: FieldReader, min: number): number | undefined {
  const olderName = reader.integer('max_tokens', { min });
  return reader.integer('max_completion_tokens', { min }) ?? olderName;
}

function readConversation(
  reader: FieldReader,
  { maxModelLen }: ParseLimits,
  own?: OwnChatFields,
): Conversation & Pick<ParsedTools, 'areParallel' | 'requiredTools'> {
  const messages = own?.messages ?? readMessages(reader, maxModelLen);
  const tools = own?.tools ?? readTools(reader);
  const continued = { addGenerationPrompt: false, continueFinalMessage: true };
  const end = own?.continuesAnswer === true ? continued : readEnd(reader, messages, tools);
  if (own?.continuesAnswer === true && tools.requiredTools !== undefined) throw callsInText(reader);
  const effort = own?.effort ?? reader.choice('reasoning_effort', efforts);
  const variables = { ...effortVariables(effort), ...(own?.variables ?? reader.json('chat_template_kwargs')) };
  reader.refuse('chat_template', asksForNothing, ': a template is chosen with --chat-template at start');
  return { messages, ...tools, ...end, variables };
}

/** How the prompt ends: with the start of an answer, or in the final message. */
function readEnd(reader: FieldReader, messages: readonly ToolMessage[], { requiredTools }: ParsedTools) {
  const continueFinalMessage = reader.boolean('continue_final_message') ?? false;
  const addGenerationPrompt = reader.boolean('add_generation_prompt') ?? !continueFinalMessage;
  if (continueFinalMessage) {
    if (addGenerationPrompt) {
      throw reader.invalid('continue_final_message', 'false if `add_generation_prompt` is true', 'true');
    }
    if (requiredTools !== undefined) throw callsInText(reader);
    if ((messages.at(-1)?.toolCalls ?? []).length > 0) {
      throw reader.invalid(`messages[${messages.length - 1}]`, textExpected('a text without calls'), 'calls');
    }
  }
  return { addGenerationPrompt, continueFinalMessage };
}

const textExpected = (value: string): string => `${value} if \`continue_final_message\` is true`;
const callsInText = (reader: FieldReader): Error =>
  reader.invalid('tool_choice', textExpected('"auto" or "none"'), 'required calls');

export const efforts = ['none', 'minimal', 'low', 'medium', 'high', 'xhigh', 'max'];

/** Names that templates read, as in vLLM. A template without them has no effort to choose. */
function effortVariables(effort: string | undefined): Readonly<Record<string, unknown>> {
  if (effort === undefined) return {};
  return effort === 'none' ? { enable_thinking: false } : { reasoning_effort: effort };
}

function readGeneration(
  reader: FieldReader,
  limits: ParseLimits,
  { promptLogprobs, echoedLogprobs, ...perEndpoint }: PerEndpoint & { readonly echoedLogprobs?: number | undefined },
  { addSpecial, stop, structure, repetitionPenalty }: OwnFields & { readonly addSpecial: boolean },
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
  const cacheSalt = readCacheSalt(reader);
  const kvTransferParams = readKvTransferParams(reader);
  const params = readSamplingParams(
    reader,
    {
      ...perEndpoint,
      own: withoutUndefined({ stop, repetitionPenalty }),
      promptLogprobs: largest(promptLogprobs, echoedLogprobs),
      // Routers reduce `max_tokens` to 1 for the prefill, and some leave `min_tokens` as the client sent it.
      ignoresMinTokens: kvTransferParams?.do_remote_decode === true,
    },
    limits.vocabSize,
  );
  ignoreSmall(reader, harmlessFields);
  const ignored = reader.ignore(foreignFields);
  refuseUnsupported(reader);
  return {
    ...withoutUndefined({
      model: reader.name('model'),
      cacheSalt,
      promptLogprobs,
      echoedLogprobs,
      priority: readPriority(reader),
      kvTransferParams,
      structure: readStructure(reader, structure),
    }),
    params,
    ignored,
    isStrict: limits.unknownFields === undefined,
    stream,
    includeUsage,
    continuousUsage,
    returnTokenIds: reader.boolean('return_token_ids') ?? false,
    addSpecial: reader.boolean('add_special_tokens') ?? addSpecial,
  };
}

function largest(a: number | undefined, b: number | undefined): number | undefined {
  return a === undefined || b === undefined ? (a ?? b) : Math.max(a, b);
}

export const readCacheSalt = (reader: FieldReader): string | undefined =>
  reader.string('cache_salt', { min: 1, max: nameLengthMax });

export function readPriority(reader: FieldReader): number | undefined {
  return reader.integer('priority', { min: -(2 ** 31), max: 2 ** 31 - 1 });
}

/** The length as JSON. Those of a long prompt have the number of each of its blocks. */
const kvTransferParamsMax = 1024 * 1024;

function readKvTransferParams(reader: FieldReader): JsonObject | undefined {
  reader.json('kv_transfer_params');
  reader.small('kv_transfer_params', kvTransferParamsMax);
  return reader.plain('kv_transfer_params') as JsonObject | undefined;
}

/** `field`: its name in the body. */
export function readPrompts(reader: FieldReader, limits: ParseLimits, field = 'prompt'): (string | Int32Array)[] {
  const expected = 'a string, a list of strings, a list of token ids, or a list of such lists';
  const value = reader.required(field, reader.raw(field, shapes.text, shapes.list), expected);
  if (typeof value === 'string') return [reader.wellFormed(field, value)];
  if (!Array.isArray(value)) throw reader.invalid(field, expected);
  const first: unknown = value[0];
  if (first === undefined) throw promptEmpty();
  if (typeof first === 'number') return [readPromptTokens(reader, value, field, limits)];
  // Checked before the prompts are read, so that a list of a million prompts is refused at once.
  if (value.length > limits.choicesMax) {
    throw tooManyChoices({ asked: `${value.length} items of \`${field}\``, limit: limits.choicesMax });
  }
  return value.map((item: unknown, i) => {
    const name = `${field}[${i}]`;
    if (!Array.isArray(first)) return reader.wellFormed(name, item);
    if (!Array.isArray(item)) throw reader.invalid(name, 'a list of token ids', describeValue(item));
    return readPromptTokens(reader, item, name, limits);
  });
}

/** The length is checked first, so that a list that is too long is not read. */
function readPromptTokens(reader: FieldReader, items: readonly unknown[], name: string, limits: ParseLimits) {
  const { maxModelLen } = limits;
  // Only embeddings have another name for prompts, and they have no output.
  const isEmbedding = name.startsWith('input');
  if (items.length >= maxModelLen + (isEmbedding ? 1 : 0)) {
    throw tooManyTokens({ promptTokens: items.length, maxModelLen, isEmbedding });
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

function checkChoices(prompts: number, { n = 1 }: CheckedSampling, limits: ParseLimits, field = 'n'): void {
  if (prompts * n <= limits.choicesMax) return;
  const asked = `${prompts === 1 ? '1 prompt' : `${prompts} prompts`} times \`${field}\` = ${n} completions`;
  throw tooManyChoices({ asked, limit: limits.choicesMax });
}

export interface ParsedTokenize {
  readonly model?: string;
  readonly addSpecial: boolean;
  readonly parseSpecial: boolean;
  readonly tokenStrings: boolean;
  /** The answer has the text of each token beside its id, as in llama-server. */
  readonly withPieces: boolean;
  readonly input: string | Conversation;
}

/** The body of vLLM's `/tokenize`, `{prompt}` or `{messages}`, or of llama-server's, `{content}`. */
export function parseTokenize(body: unknown, limits: ParseLimits): ParsedTokenize {
  const reader = bodyReader(body, limits);
  const isChat = reader.raw('messages', shapes.list) !== undefined;
  const content = reader.string('content');
  const expected = 'a string (or `messages`, a list of messages)';
  const input = isChat
    ? readConversation(reader, limits)
    : (content ?? reader.required('prompt', reader.string('prompt'), expected));
  const isPrompt = !isChat && content === undefined;
  const addSpecial = reader.boolean('add_special_tokens') ?? reader.boolean('add_special') ?? isPrompt;
  const parseSpecial = reader.boolean('parse_special') ?? true;
  const tokenStrings = reader.boolean('return_token_strs') ?? false;
  const withPieces = reader.boolean('with_pieces') ?? false;
  const model = reader.name('model');
  reader.finish();
  return { ...withoutUndefined({ model }), addSpecial, parseSpecial, tokenStrings, withPieces, input };
}

/** A prompt whose cached blocks are meant. */
export interface ParsedPrefix {
  readonly model?: string;
  readonly input: string | Int32Array | Conversation;
  readonly addSpecial: boolean;
  readonly cacheSalt?: string;
}

/** `{prompt}`, `{tokens}` or `{messages}`, and what separates its cache. */
export function readPrefix(reader: FieldReader, limits: ParseLimits): ParsedPrefix {
  const tokens = reader.raw('tokens', shapes.integers);
  const isChat = reader.raw('messages', shapes.list) !== undefined;
  const prompt = reader.string('prompt', { min: 1 });
  const given = [tokens, isChat ? true : undefined, prompt].filter((form) => form !== undefined).length;
  if (given > 1)
    throw reader.invalid('prompt', 'absent if there are `tokens` or `messages`, of which one says the prompt');
  const input = isChat ? readConversation(reader, limits) : (readTokenList(reader, tokens, limits) ?? prompt);
  const expected = 'a string (or `tokens`, a list of token ids, or `messages`)';
  const rest = withoutUndefined({ model: reader.name('model'), cacheSalt: readCacheSalt(reader) });
  return {
    ...rest,
    input: input ?? reader.required('prompt', prompt, expected),
    addSpecial: reader.boolean('add_special_tokens') ?? !isChat,
  };
}

function readTokenList(reader: FieldReader, value: unknown, limits: ParseLimits): Int32Array | undefined {
  if (value === undefined) return undefined;
  if (!Array.isArray(value) || value.length === 0)
    throw reader.invalid('tokens', 'a list of token ids', describeValue(value));
  return readPromptTokens(reader, value, 'tokens', limits);
}

export interface ParsedDetokenize {
  readonly model?: string;
  readonly tokens: Int32Array;
}

export function parseDetokenize(body: unknown, limits: ParseLimits): ParsedDetokenize {
  const reader = bodyReader(body, limits);
  const value = reader.required('tokens', reader.raw('tokens', shapes.integers), 'a list of token ids');
  if (!Array.isArray(value)) throw reader.invalid('tokens', 'a list of token ids');
  // As many as `/tokenize` returns: more than the context, and limited by the size and the memory of the request.
  const tokens = readTokens(reader, value, 'tokens', limits);
  const model = reader.name('model');
  reader.finish();
  return { ...withoutUndefined({ model }), tokens };
}
