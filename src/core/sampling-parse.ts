import { describeValue } from '../base/describe-value.ts';
import { type FieldObserver, type FieldReader, shapes, withoutUndefined } from '../base/field-reader.ts';
import { invalidParameter } from './errors.ts';
import { type TokenId, tokenId } from './ids.ts';
import { parameterReader } from './parameter-reader.ts';
import type { SamplingParams } from './sampling.ts';
import { readStructuredFields } from './structured-outputs.ts';

/** What a request's parameters are checked against. */
export interface SamplingLimits {
  /** Token ids in `logitBias` and `stopTokenIds` are below it. */
  readonly vocabSize: number;
  /** For a request without `maxTokens`; the engine passes the model's length less the prompt. At least 1. */
  readonly maxTokensDefault: number;
  /** Draws the seed of a request without one. Called at most once. */
  drawSeed(): bigint;
}

export const completionsMax = 128;
const stopStringsMax = 16;
const stopTokenIdsMax = 128;
export const logprobsMax = 20;
const logitBiasMax = 1024;
const biasMax = 100;
/** Each completion builds a table that is as long as its stop strings. */
const stopLengthMax = 4096;
const seedEnd = 2n ** 64n;

/** Marks parameters that were checked, so that they are not read again. A copy in an object literal keeps it. */
const checked = Symbol('checked');

/**
 * The parameters that a caller gave, checked. Absent ones stay absent until the prompt is known. Code that copies the object and
 * changes a field must give it a valid value.
 */
export interface CheckedSampling extends Partial<SamplingParams> {
  readonly [checked]: true;
}

/**
 * Reads a caller's parameters; parameters that were read already are returned unchanged. Absent, `undefined` and `null` mean the
 * default. It also accepts `seed` as a safe integer, `stop` as one string, `logitBias` as a plain object, and `topK: -1` for
 * "all" (as in vLLM).
 *
 * @throws KvasirError `invalidParameter` with the parameter's name, the expected value and the actual value.
 */
export function checkSampling(input: unknown, vocabSize: number, observer?: FieldObserver): CheckedSampling {
  if (isChecked(input)) return input;
  const reader = parameterReader(input ?? {}, 'params', '', observer);
  const topK = reader.integer('topK', { min: -1 });
  const structured = reader.object('structuredOutputs');
  const params = withoutUndefined({
    n: reader.integer('n', { min: 1, max: completionsMax }),
    temperature: reader.number('temperature', { min: 0 }),
    topK: topK === undefined ? undefined : Math.max(topK, 0),
    topP: reader.number('topP', { above: 0, max: 1 }),
    minP: reader.number('minP', { min: 0, max: 1 }),
    repetitionPenalty: reader.number('repetitionPenalty', { above: 0 }),
    presencePenalty: reader.number('presencePenalty', { min: -2, max: 2 }),
    frequencyPenalty: reader.number('frequencyPenalty', { min: -2, max: 2 }),
    logitBias: readLogitBias(reader, vocabSize),
    seed: readSeed(reader),
    maxTokens: reader.integer('maxTokens', { min: 0 }),
    minTokens: reader.integer('minTokens', { min: 0 }),
    stop: readStopStrings(reader),
    stopTokenIds: readTokenIds(reader, vocabSize),
    ignoreEos: reader.boolean('ignoreEos'),
    includeStopStrInOutput: reader.boolean('includeStopStrInOutput'),
    skipSpecialTokens: reader.boolean('skipSpecialTokens'),
    logprobs: reader.integer('logprobs', { min: 0, max: logprobsMax }),
    promptLogprobs: reader.integer('promptLogprobs', { min: 0, max: logprobsMax }),
    structuredOutputs: structured && readStructuredFields(structured),
  });
  // A misspelt name would silently mean the default.
  reader.finish();
  if (params.maxTokens !== undefined) checkMinTokens(params.minTokens, params.maxTokens);
  return Object.freeze({ ...params, [checked]: true as const });
}

const isChecked = (input: unknown): input is CheckedSampling =>
  typeof input === 'object' && input !== null && checked in input;

const defaults = Object.freeze({
  n: 1,
  temperature: 1,
  topK: 0,
  topP: 1,
  minP: 0,
  repetitionPenalty: 1,
  presencePenalty: 0,
  frequencyPenalty: 0,
  minTokens: 0,
  stop: Object.freeze([]),
  stopTokenIds: Object.freeze([]),
  ignoreEos: false,
  includeStopStrInOutput: false,
  skipSpecialTokens: true,
} satisfies Partial<SamplingParams>);

export interface SeededSampling extends CheckedSampling {
  readonly seed: bigint;
}

/** With the caller's seed, or with one that is drawn. */
export const withSeed = (given: CheckedSampling, drawSeed: () => bigint): SeededSampling => ({
  ...given,
  seed: given.seed ?? BigInt.asUintN(64, drawSeed()),
});

/** For absent parameters, before the general defaults: what the model's publisher recommends. */
export type ModelSampling = Partial<
  Pick<SamplingParams, 'temperature' | 'topK' | 'topP' | 'minP' | 'repetitionPenalty'>
>;

/**
 * What `kvasir generate`, `kvasir chat` and the page use without settings: what the model's publisher recommends, else these. With the
 * defaults of the API, a temperature of 1 without filters, small models often take tokens with a tiny probability.
 */
export const unsetSampling = (ofModel: ModelSampling = {}): ModelSampling =>
  Object.keys(ofModel).length > 0 ? ofModel : { temperature: 0.7, minP: 0.05 };

/** With all defaults, frozen. @throws KvasirError `invalidParameter` for a `minTokens` above the default of `maxTokens`. */
export function completeSampling(
  { [checked]: _, ...given }: SeededSampling,
  maxTokensDefault: number,
  ofModel: ModelSampling = {},
): SamplingParams {
  const { maxTokens = maxTokensDefault, logitBias = new Map() } = given;
  checkMinTokens(given.minTokens, maxTokens);
  return Object.freeze({ ...defaults, ...ofModel, ...given, logitBias, maxTokens });
}

/** All in one step: a caller's input as `SamplingParams`. */
export const parseSamplingParams = (input: unknown, limits: SamplingLimits): SamplingParams =>
  completeSampling(withSeed(checkSampling(input, limits.vocabSize), limits.drawSeed), limits.maxTokensDefault);

function checkMinTokens(minTokens = 0, maxTokens: number): void {
  if (minTokens <= maxTokens) return;
  const expected = `at most maxTokens (${maxTokens})`;
  throw invalidParameter({ parameter: 'minTokens', expected, actual: String(minTokens) });
}

function readSeed(reader: FieldReader): bigint | undefined {
  const value = reader.raw('seed', shapes.integer);
  if (value === undefined || (typeof value === 'bigint' && value >= 0n && value < seedEnd)) return value;
  if (Number.isSafeInteger(value) && (value as number) >= 0) return BigInt(value as number);
  throw reader.invalid('seed', 'an integer from 0 to 2^64 - 1, as a bigint if it is above 2^53 - 1');
}

/** Decoded text has no lone surrogates, and a stop string with half a pair would split a character. */
const loneSurrogate = /\p{Surrogate}/u;

function readStopStrings(reader: FieldReader): readonly string[] | undefined {
  const value = reader.raw('stop', shapes.text, shapes.texts);
  if (value === undefined) return undefined;
  const list: unknown = typeof value === 'string' ? [value] : value;
  const wrong = (expected: string, actual?: string) => reader.invalid('stop', expected, actual);
  if (!Array.isArray(list)) throw wrong('a string or an array of strings');
  if (list.length > stopStringsMax) throw wrong(`at most ${stopStringsMax} strings`, `${list.length} strings`);
  for (const text of list) {
    if (typeof text !== 'string' || text === '')
      throw wrong('an array of strings that are not empty', describeValue(text));
    if (text.length > stopLengthMax)
      throw wrong(`strings of at most ${stopLengthMax} characters`, `${text.length} characters`);
    if (loneSurrogate.test(text)) throw wrong('well-formed Unicode text', 'a lone surrogate');
  }
  return Object.freeze([...list] as string[]);
}

function readTokenIds(reader: FieldReader, vocabSize: number): readonly TokenId[] | undefined {
  const value = reader.raw('stopTokenIds', shapes.integers);
  if (value === undefined) return undefined;
  const wrong = (expected: string, actual?: string) => reader.invalid('stopTokenIds', expected, actual);
  if (!Array.isArray(value)) throw wrong('an array of token ids');
  if (value.length > stopTokenIdsMax) throw wrong(`at most ${stopTokenIdsMax} ids`, `${value.length} ids`);
  for (const id of value) {
    if (!isTokenId(id, vocabSize)) throw wrong(`token ids from 0 to ${vocabSize - 1}`, describeValue(id));
  }
  return Object.freeze([...new Set(value as TokenId[])]);
}

function readLogitBias(reader: FieldReader, vocabSize: number): ReadonlyMap<TokenId, number> | undefined {
  const value = reader.raw('logitBias', shapes.object);
  if (value === undefined) return undefined;
  const wrong = (expected: string, actual?: string) => reader.invalid('logitBias', expected, actual);
  if (typeof value !== 'object' || value === null || Array.isArray(value)) {
    throw wrong('a map or an object from token id to bias');
  }
  const count = value instanceof Map ? value.size : Object.keys(value).length;
  if (count > logitBiasMax) throw wrong(`a map with at most ${logitBiasMax} entries`, `${count} entries`);
  const result = new Map<TokenId, number>();
  for (const [key, bias] of value instanceof Map ? value : Object.entries(value)) {
    // JSON has string keys only. Keys must be decimal digits: Number('') is 0 and Number('1e2') is 100.
    const id = typeof key === 'string' && /^\d{1,15}$/.test(key) ? Number(key) : key;
    if (!isTokenId(id, vocabSize)) throw wrong(`a map from token ids (0 to ${vocabSize - 1})`, describeValue(key));
    if (typeof bias !== 'number' || !(Math.abs(bias) <= biasMax)) {
      throw wrong(`a map to numbers from -${biasMax} to ${biasMax}`, describeValue(bias));
    }
    result.set(tokenId(id), bias);
  }
  return result;
}

const isTokenId = (value: unknown, vocabSize: number): value is number =>
  Number.isSafeInteger(value) && (value as number) >= 0 && (value as number) < vocabSize;
