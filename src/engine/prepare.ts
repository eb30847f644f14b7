import { isJsonObject, type JsonObject } from '../base/json.ts';
import { invalidParameter, promptEmpty, promptTooLong } from '../core/errors.ts';
import type { SamplingParams } from '../core/sampling.ts';
import { parseSamplingParams } from '../core/sampling-parse.ts';
import { describeValue } from '../core/sampling-read.ts';
import type { EncodeOptions, Tokenizer } from '../tokenizer/contract.ts';
import type { GenerateRequest, ModelInfo } from './contract.ts';
import { checkTextFits, isLongText } from './prompt-limits.ts';

/** A request that is known to be sound: it fits the model, and everything about it is decided. */
export interface PreparedRequest {
  /** Our own copy. */
  readonly promptTokens: Int32Array;
  readonly params: SamplingParams;
  readonly cacheSalt?: string;
  readonly priority: number;
  readonly kvTransferParams?: JsonObject;
}

export interface PrepareParts {
  readonly tokenizer: Tokenizer;
  readonly model: ModelInfo;
  drawSeed(): bigint;
}

/**
 * Everything about a request that can be wrong is found here, before it costs anything.
 * @throws KvasirError `invalidParameter`, `promptEmpty` or `promptTooLong`.
 */
export function prepareRequest(request: GenerateRequest, parts: PrepareParts): PreparedRequest {
  checkFields(request);
  return withTokens(request, readPrompt(request, parts), parts);
}

/** A request with a long text, whose tokens are still to come. */
export interface LongRequest {
  readonly text: string;
  readonly options: EncodeOptions;
  /** Completions. */
  readonly n: number;
  /** What is left to check when the tokens are there. Throws as `prepareRequest` does. */
  finish(promptTokens: Int32Array): PreparedRequest;
}

export const hasLongText = (request: GenerateRequest): request is GenerateRequest & { prompt: string } =>
  typeof request.prompt === 'string' && isLongText(request.prompt);

/** The same for a request whose text is to be tokenized elsewhere: everything but the tokens is checked now. */
export function prepareLongRequest(request: GenerateRequest & { prompt: string }, parts: PrepareParts): LongRequest {
  checkFields(request);
  const { prompt: text, addSpecial = true, parseSpecial = false } = request;
  checkTextFits(text, parts.tokenizer, parts.model);
  // The caller's object may change meanwhile. The seed is drawn now, so that seeds follow the order of the calls.
  const kept = { ...request, ...(request.params === undefined ? {} : { params: { ...request.params } }) };
  const { n, seed } = readParams(kept, 1, parts);
  const finish = (promptTokens: Int32Array) => withTokens(kept, promptTokens, { ...parts, drawSeed: () => seed });
  return { text, options: { addSpecial, parseSpecial }, n, finish };
}

function checkFields({ cacheSalt, kvTransferParams, priority = 0 }: GenerateRequest): void {
  if (!Number.isFinite(priority)) throw wrong('priority', 'a finite number', priority);
  if (cacheSalt !== undefined && (typeof cacheSalt !== 'string' || cacheSalt === '')) {
    throw wrong('cacheSalt', 'a string that is not empty', cacheSalt);
  }
  if (kvTransferParams !== undefined && !isJsonObject(kvTransferParams)) {
    throw wrong('kvTransferParams', 'an object', kvTransferParams);
  }
}

function withTokens(request: GenerateRequest, promptTokens: Int32Array, parts: PrepareParts): PreparedRequest {
  const { maxModelLen } = parts.model;
  const { cacheSalt, kvTransferParams, priority = 0 } = request;
  if (promptTokens.length === 0) throw promptEmpty();
  const params = readParams(request, promptTokens.length, parts);
  if (promptTokens.length + params.maxTokens > maxModelLen) throw tooLong(promptTokens.length, params, maxModelLen);
  return {
    promptTokens,
    params,
    priority,
    ...(cacheSalt === undefined ? {} : { cacheSalt }),
    ...(kvTransferParams === undefined ? {} : { kvTransferParams }),
  };
}

function readParams({ params }: GenerateRequest, promptTokens: number, { model, drawSeed }: PrepareParts) {
  return parseSamplingParams(params, {
    vocabSize: model.vocabSize,
    // At least 1, so that an overlong prompt is told of its own length and not of a limit of zero.
    maxTokensDefault: Math.max(1, model.maxModelLen - promptTokens),
    drawSeed,
  });
}

function readPrompt(request: GenerateRequest, { tokenizer, model }: PrepareParts): Int32Array {
  const { addSpecial = true, parseSpecial = false } = request;
  const prompt: unknown = request.prompt;
  // Also where BOS would make it one token: whoever wants to begin from nothing says so in tokens.
  if (prompt === '') throw promptEmpty();
  if (typeof prompt === 'string') {
    checkTextFits(prompt, tokenizer, model);
    return tokenizer.encode(prompt, { addSpecial, parseSpecial });
  }
  if (!isArrayLike(prompt)) throw wrong('prompt', 'a text or an array of token ids', prompt);
  // Before anything is copied: the length is the caller's claim.
  if (prompt.length >= model.maxModelLen) {
    throw promptTooLong({ promptTokens: prompt.length, maxTokens: 1, maxModelLen: model.maxModelLen });
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

const tooLong = (promptTokens: number, { maxTokens }: SamplingParams, maxModelLen: number) =>
  promptTooLong({ promptTokens, maxTokens, maxModelLen });

const wrong = (parameter: string, expected: string, actual: unknown) =>
  invalidParameter({ parameter, expected, actual: describeValue(actual) });
