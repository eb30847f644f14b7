import { describeValue } from '../base/describe-value.ts';
import { nameLengthMax, withoutUndefined } from '../base/field-reader.ts';
import type { JsonObject } from '../base/json.ts';
import type { OutputConstraint } from '../core/constraint.ts';
import { invalidParameter, promptEmpty, tooManyTokens } from '../core/errors.ts';
import { type RequestId, tokenId } from '../core/ids.ts';
import { parameterReader } from '../core/parameter-reader.ts';
import type { AdapterRef, EngineRequest, Pooling } from '../core/request.ts';
import type { SamplingParams } from '../core/sampling.ts';
import { checkSampling, completeSampling, type SeededSampling, withSeed } from '../core/sampling-parse.ts';
import type { Tokenizer } from '../tokenizer/contract.ts';
import type { Adapters } from './adapters.ts';
import { type PromptText, promptText } from './chat/rendered-prompt.ts';
import type { GenerateRequest, ModelInfo } from './contract.ts';
import { adapterNotFound } from './errors.ts';
import { checkTextFits } from './prompt-limits.ts';

/** A checked request: it fits the model, and all defaults are set. */
export interface PreparedRequest {
  /** A copy of the caller's tokens. */
  readonly promptTokens: Int32Array;
  readonly params: SamplingParams;
  readonly pooling?: Pooling;
  readonly isPooled?: boolean;
  readonly cacheSalt?: string;
  readonly adapter?: AdapterRef;
  readonly priority: number;
  readonly tenant?: string;
  readonly kvTransferParams?: JsonObject;
  readonly unreadMaxBytes?: number;
  readonly loadOnly?: true;
}

export interface PrepareParts {
  readonly tokenizer: Tokenizer;
  readonly model: ModelInfo;
  readonly adapters?: Pick<Adapters, 'find'> | undefined;
  drawSeed(): bigint;
  /** Of an embedding request. */
  readonly pooling?: Pooling | undefined;
  /** The request only loads. */
  readonly loadOnly?: true | undefined;
}

/** A request of which everything but the tokens of its text is checked. */
export interface CheckedRequest
  extends Pick<
    PreparedRequest,
    | 'pooling'
    | 'isPooled'
    | 'cacheSalt'
    | 'adapter'
    | 'priority'
    | 'tenant'
    | 'kvTransferParams'
    | 'unreadMaxBytes'
    | 'loadOnly'
  > {
  readonly sampling: SeededSampling;
  readonly prompt: PromptText | Int32Array;
}

/**
 * Checks a request before any work is done for it. The caller may change the request afterwards: its parameters and tokens are
 * copied.
 * @throws KvasirError `invalidParameter`, `promptEmpty` or `promptTooLong`.
 */
export function checkRequest(request: GenerateRequest, parts: PrepareParts): CheckedRequest {
  const { model, pooling, drawSeed, adapters, loadOnly } = parts;
  const reader = parameterReader(request, 'request');
  reader.json('traceHeaders');
  const lora = reader.string('lora', { min: 1 });
  if (lora !== undefined && adapters === undefined) throw adapterNotFound({ name: lora, loaded: 'none' });
  const fields = withoutUndefined({
    adapter: lora === undefined ? undefined : adapters?.find(lora),
    cacheSalt: reader.string('cacheSalt', { min: 1, max: nameLengthMax }),
    tenant: reader.string('tenant'),
    kvTransferParams: reader.json('kvTransferParams'),
    pooling,
    isPooled: pooling !== undefined && model.hasPooledHead === true ? true : undefined,
    unreadMaxBytes: request.unreadMaxBytes,
    loadOnly,
  });
  const priority = reader.number('priority') ?? 0;
  const sampling = checkSampling(request.params, model.vocabSize);
  const prompt = readPrompt(request, parts);
  // Drawn now, so that seeds follow the order of the calls.
  return { ...fields, priority, prompt, sampling: withSeed(sampling, drawSeed) };
}

/** The request with the tokens of its prompt. Throws as `checkRequest` does. */
export function prepareRequest(
  { sampling, prompt: _, ...fields }: CheckedRequest,
  promptTokens: Int32Array,
  { maxModelLen, samplingDefaults }: ModelInfo,
): PreparedRequest {
  if (promptTokens.length === 0) throw promptEmpty();
  // At least 1, so that the error for a too long prompt names the prompt's length and not a limit of 0.
  const params = completeSampling(sampling, Math.max(1, maxModelLen - promptTokens.length), samplingDefaults);
  if (promptTokens.length + params.maxTokens <= maxModelLen) return { ...fields, promptTokens, params };
  const isEmbedding = fields.pooling !== undefined;
  throw tooManyTokens({ promptTokens: promptTokens.length, maxTokens: sampling.maxTokens, maxModelLen, isEmbedding });
}

/** What the engine adds to a checked request for one of its completions. */
interface CompletionParts {
  readonly id: RequestId;
  readonly index: number;
  readonly constraint: OutputConstraint | undefined;
  readonly eosTokenIds: readonly number[];
}

/** The scheduler's request for one completion of a checked request. */
export function completionRequest(
  {
    promptTokens,
    params,
    pooling,
    isPooled,
    priority,
    tenant,
    cacheSalt,
    adapter,
    kvTransferParams,
    loadOnly,
  }: PreparedRequest,
  { id, index, constraint, eosTokenIds }: CompletionParts,
): EngineRequest {
  return Object.freeze({
    id,
    promptTokens,
    params: paramsOfCompletion(params, index),
    eosTokenIds: eosTokenIds.map(tokenId),
    priority,
    ...(pooling === undefined ? {} : { pooling }),
    ...(isPooled === undefined ? {} : { isPooled }),
    ...(tenant === undefined ? {} : { tenant }),
    ...(cacheSalt === undefined ? {} : { cacheSalt }),
    ...(adapter === undefined ? {} : { adapter }),
    ...(kvTransferParams === undefined ? {} : { kvTransferParams }),
    ...(constraint === undefined ? {} : { constraint }),
    ...(loadOnly === undefined ? {} : { loadOnly }),
  });
}

/**
 * The logprobs of the prompt are the same for all completions, so only the first asks for them: the others may find the prompt in the
 * prefix cache. Ranks need no schemas: they get masks.
 */
function paramsOfCompletion(
  { structuredOutputs: _, promptLogprobs, ...params }: SamplingParams,
  index: number,
): SamplingParams {
  const asksForPrompt = promptLogprobs !== undefined && index === 0;
  return Object.freeze({
    ...params,
    ...(asksForPrompt ? { promptLogprobs } : {}),
    seed: BigInt.asUintN(64, params.seed + BigInt(index)),
  });
}

function readPrompt(request: GenerateRequest, { tokenizer, model, pooling }: PrepareParts): PromptText | Int32Array {
  const prompt: unknown = request.prompt;
  const given = promptText(prompt, request);
  // Refused although BOS would make it one token: a client that wants only BOS sends its token id.
  if (given?.text === '') throw promptEmpty();
  if (given !== undefined) {
    checkTextFits(given.text, tokenizer, model);
    return given;
  }
  if (!isArrayLike(prompt)) throw wrong('prompt', 'a text, a rendered conversation or an array of token ids', prompt);
  // Checked before the copy is allocated, because `length` can be any number.
  const isEmbedding = pooling !== undefined;
  if (prompt.length >= model.maxModelLen + (isEmbedding ? 1 : 0)) {
    const { maxModelLen } = model;
    throw tooManyTokens({ promptTokens: prompt.length, maxModelLen, isEmbedding });
  }
  const tokens = new Int32Array(prompt.length);
  for (let position = 0; position < tokens.length; position++) {
    const token = prompt[position];
    if (!Number.isInteger(token) || (token as number) < 0 || (token as number) >= model.vocabSize) {
      const actual = `${describeValue(token)} at position ${position}`;
      throw invalidParameter({ parameter: 'prompt', expected: `token ids from 0 to ${model.vocabSize - 1}`, actual });
    }
    tokens[position] = token as number;
  }
  return tokens;
}

const isArrayLike = (value: unknown): value is ArrayLike<unknown> =>
  typeof value === 'object' &&
  value !== null &&
  'length' in value &&
  Number.isSafeInteger(value.length) &&
  (value.length as number) >= 0;

const wrong = (parameter: string, expected: string, actual: unknown) =>
  invalidParameter({ parameter, expected, actual: describeValue(actual) });
