import { assertDefined } from '../base/assert.ts';
import { describeValue } from '../base/describe-value.ts';
import { nameLengthMax, withoutUndefined } from '../base/field-reader.ts';
import type { JsonObject } from '../base/json.ts';
import type { OutputConstraint } from '../core/constraint.ts';
import { invalidParameter, promptEmpty, tooManyTokens } from '../core/errors.ts';
import { type RequestId, tokenId } from '../core/ids.ts';
import { parameterReader } from '../core/parameter-reader.ts';
import type { EngineRequest, Pooling } from '../core/request.ts';
import type { SamplingParams } from '../core/sampling.ts';
import { type CheckedSampling, checkSampling, completeSampling } from '../core/sampling-parse.ts';
import type { EncodeOptions, Tokenizer } from '../tokenizer/contract.ts';
import { promptText } from './chat/rendered-prompt.ts';
import type { GenerateRequest, ModelInfo } from './contract.ts';
import { checkTextFits, tokenizeCost } from './prompt-limits.ts';

/** A checked request: it fits the model, and all defaults are set. */
export interface PreparedRequest {
  /** A copy of the caller's tokens. */
  readonly promptTokens: Int32Array;
  readonly params: SamplingParams;
  readonly pooling?: Pooling;
  readonly cacheSalt?: string;
  readonly priority: number;
  readonly tenant?: string;
  readonly kvTransferParams?: JsonObject;
  readonly unreadMaxBytes?: number;
}

export interface PrepareParts {
  readonly tokenizer: Tokenizer;
  readonly model: ModelInfo;
  drawSeed(): bigint;
  /** Of an embedding request. */
  readonly pooling?: Pooling | undefined;
}

/**
 * Checks a whole request before any work is done for it.
 * @throws KvasirError `invalidParameter`, `promptEmpty` or `promptTooLong`.
 */
export function prepareRequest(request: GenerateRequest, parts: PrepareParts): PreparedRequest {
  const fields = checkFields(request, parts);
  return withTokens(fields, readPrompt(request, parts), parts);
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
  { promptTokens, params, pooling, priority, tenant, cacheSalt, kvTransferParams }: PreparedRequest,
  { id, index, constraint, eosTokenIds }: CompletionParts,
): EngineRequest {
  return Object.freeze({
    id,
    promptTokens,
    params: paramsOfCompletion(params, index),
    eosTokenIds: eosTokenIds.map(tokenId),
    priority,
    ...(pooling === undefined ? {} : { pooling }),
    ...(tenant === undefined ? {} : { tenant }),
    ...(cacheSalt === undefined ? {} : { cacheSalt }),
    ...(kvTransferParams === undefined ? {} : { kvTransferParams }),
    ...(constraint === undefined ? {} : { constraint }),
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

/** A request with a text that is not tokenized yet. */
export interface LongRequest {
  readonly text: string;
  readonly options: EncodeOptions;
  /** Those that do not depend on the prompt are final. */
  readonly params: SamplingParams;
  /** Checks the tokens. Throws as `prepareRequest` does. */
  finish(promptTokens: Int32Array): PreparedRequest;
}

/** Of `prepareRequest`: the cost of tokenizing. */
export const prepareCost = (request: GenerateRequest): number =>
  tokenizeCost(promptText(request.prompt, request)?.text ?? '');

/** Like `prepareRequest`, for a text that is tokenized on another thread: checks everything except the tokens. */
export function prepareLongRequest(request: GenerateRequest, parts: PrepareParts): LongRequest {
  // The caller may change the object meanwhile, but not what was read of it.
  const fields = checkFields(request, parts);
  const { text, options } = assertDefined(promptText(request.prompt, request), 'a long prompt is a text');
  checkTextFits(text, parts.tokenizer, parts.model);
  // The seed is drawn now, so that seeds follow the call order.
  const params = complete(fields.sampling, 1, parts);
  const seeded = { ...fields, sampling: { ...fields.sampling, seed: params.seed } };
  return { text, options, params, finish: (promptTokens) => withTokens(seeded, promptTokens, parts) };
}

/** What does not depend on the prompt, checked. */
interface CheckedFields
  extends Pick<
    PreparedRequest,
    'pooling' | 'cacheSalt' | 'priority' | 'tenant' | 'kvTransferParams' | 'unreadMaxBytes'
  > {
  readonly sampling: CheckedSampling;
}

function checkFields(request: GenerateRequest, { model, pooling }: PrepareParts): CheckedFields {
  const reader = parameterReader(request, 'request');
  reader.json('traceHeaders');
  const { unreadMaxBytes } = request;
  const fields = withoutUndefined({
    cacheSalt: reader.string('cacheSalt', { min: 1, max: nameLengthMax }),
    tenant: reader.string('tenant'),
    kvTransferParams: reader.json('kvTransferParams'),
    pooling,
    unreadMaxBytes,
  });
  const sampling = checkSampling(request.params, model.vocabSize);
  return { ...fields, priority: reader.number('priority') ?? 0, sampling };
}

function withTokens(
  { sampling, ...fields }: CheckedFields,
  promptTokens: Int32Array,
  parts: PrepareParts,
): PreparedRequest {
  const { maxModelLen } = parts.model;
  if (promptTokens.length === 0) throw promptEmpty();
  const params = complete(sampling, promptTokens.length, parts);
  if (promptTokens.length + params.maxTokens > maxModelLen) {
    const isEmbedding = parts.pooling !== undefined;
    const { maxTokens } = sampling;
    throw tooManyTokens({ promptTokens: promptTokens.length, maxTokens, maxModelLen, isEmbedding });
  }
  return { ...fields, promptTokens, params };
}

function complete(sampling: CheckedSampling, promptTokens: number, { model, drawSeed }: PrepareParts): SamplingParams {
  return completeSampling(sampling, {
    // At least 1, so that the error for a too long prompt names the prompt's length and not a limit of 0.
    maxTokensDefault: Math.max(1, model.maxModelLen - promptTokens),
    drawSeed,
  });
}

function readPrompt(request: GenerateRequest, { tokenizer, model, pooling }: PrepareParts): Int32Array {
  const prompt: unknown = request.prompt;
  const given = promptText(prompt, request);
  // Refused although BOS would make it one token: a client that wants only BOS sends its token id.
  if (given?.text === '') throw promptEmpty();
  if (given !== undefined) {
    checkTextFits(given.text, tokenizer, model);
    return tokenizer.encode(given.text, given.options);
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
