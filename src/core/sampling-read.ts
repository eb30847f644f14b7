import { describeValue } from '../base/describe-value.ts';
import { invalidParameter } from './errors.ts';
import { type TokenId, tokenId } from './ids.ts';

/**
 * The readers of `parseSamplingParams`: each takes an unknown value, and returns a valid one or throws
 * `invalidParameter`.
 */
type Raw = Readonly<Record<string, unknown>>;

const biasMax = 100;
/** Each completion builds a table that is as long as its stop strings. */
const stopLengthMax = 4096;
const seedEnd = 2n ** 64n;

export function readNumber(
  raw: Raw,
  parameter: string,
  fallback: number,
  range: { readonly min?: number; readonly above?: number; readonly max?: number },
): number {
  const value = raw[parameter] ?? fallback;
  const fits =
    typeof value === 'number' &&
    Number.isFinite(value) &&
    value >= (range.min ?? -Infinity) &&
    value > (range.above ?? -Infinity) &&
    value <= (range.max ?? Infinity);
  if (fits) return value;
  const bounds = [
    range.min === undefined ? '' : `at least ${range.min}`,
    range.above === undefined ? '' : `greater than ${range.above}`,
    range.max === undefined ? '' : `at most ${range.max}`,
  ].filter((bound) => bound !== '');
  throw wrong(parameter, `a finite number ${bounds.join(' and ')}`, value);
}

interface IntegerRange {
  readonly min: number;
  readonly max?: number;
}

export function readInteger(
  raw: Raw,
  parameter: string,
  fallback: number,
  { min, max = Number.MAX_SAFE_INTEGER }: IntegerRange,
): number {
  const value = raw[parameter] ?? fallback;
  if (Number.isSafeInteger(value) && (value as number) >= min && (value as number) <= max) return value as number;
  const isOpen = max === Number.MAX_SAFE_INTEGER && !((value as number) > max);
  const bounds = isOpen ? `at least ${min}` : `from ${min} to ${max}`;
  throw wrong(parameter, `an integer ${bounds}`, value);
}

export function readBoolean(raw: Raw, parameter: string, fallback: boolean): boolean {
  const value = raw[parameter] ?? fallback;
  if (typeof value === 'boolean') return value;
  throw wrong(parameter, 'true or false', value);
}

export function readSeed(value: unknown): bigint {
  if (typeof value === 'bigint' && value >= 0n && value < seedEnd) return value;
  if (Number.isSafeInteger(value) && (value as number) >= 0) return BigInt(value as number);
  throw wrong('seed', 'an integer from 0 to 2^64 - 1, as a bigint if it is above 2^53 - 1', value);
}

/** Decoded text has no lone surrogates, and a stop string with half a pair would split a character. */
const loneSurrogate = /\p{Surrogate}/u;

export function readStopStrings(value: unknown, countMax: number): readonly string[] {
  const list = value === undefined || value === null ? [] : typeof value === 'string' ? [value] : value;
  if (!Array.isArray(list)) throw wrong('stop', 'a string or an array of strings', value);
  if (list.length > countMax) throw wrong('stop', `at most ${countMax} strings`, `${list.length} strings`, true);
  for (const text of list) {
    if (typeof text === 'string' && text.length > stopLengthMax) {
      throw wrong('stop', `strings of at most ${stopLengthMax} characters`, `${text.length} characters`, true);
    }
    if (typeof text !== 'string' || text === '') throw wrong('stop', 'an array of strings that are not empty', text);
    if (loneSurrogate.test(text)) throw wrong('stop', 'well-formed Unicode text', 'a lone surrogate', true);
  }
  return Object.freeze([...list] as string[]);
}

export function readTokenIds(value: unknown, countMax: number, vocabSize: number): readonly TokenId[] {
  if (value === undefined || value === null) return [];
  if (!Array.isArray(value)) throw wrong('stopTokenIds', 'an array of token ids', value);
  if (value.length > countMax) throw wrong('stopTokenIds', `at most ${countMax} ids`, `${value.length} ids`, true);
  for (const id of value) {
    if (!isTokenId(id, vocabSize)) throw wrong('stopTokenIds', `token ids from 0 to ${vocabSize - 1}`, id);
  }
  return Object.freeze([...new Set(value as TokenId[])]);
}

export function readLogitBias(value: unknown, countMax: number, vocabSize: number): ReadonlyMap<TokenId, number> {
  const result = new Map<TokenId, number>();
  if (value === undefined || value === null) return result;
  if (typeof value !== 'object' || Array.isArray(value)) {
    throw wrong('logitBias', 'a map or an object from token id to bias', value);
  }
  const count = value instanceof Map ? value.size : Object.keys(value).length;
  if (count > countMax) throw wrong('logitBias', `a map with at most ${countMax} entries`, `${count} entries`, true);
  for (const [key, bias] of value instanceof Map ? value : Object.entries(value)) {
    // JSON has string keys only. Keys must be decimal digits: Number('') is 0 and Number('1e2') is 100.
    const id = typeof key === 'string' && /^\d{1,15}$/.test(key) ? Number(key) : key;
    if (!isTokenId(id, vocabSize)) throw wrong('logitBias', `a map from token ids (0 to ${vocabSize - 1})`, key);
    if (typeof bias !== 'number' || !(Math.abs(bias) <= biasMax)) {
      throw wrong('logitBias', `a map to numbers from -${biasMax} to ${biasMax}`, bias);
    }
    result.set(tokenId(id), bias);
  }
  return result;
}

const isTokenId = (value: unknown, vocabSize: number): value is number =>
  Number.isSafeInteger(value) && (value as number) >= 0 && (value as number) < vocabSize;

function wrong(parameter: string, expected: string, actual: unknown, isDescribed = false) {
  return invalidParameter({ parameter, expected, actual: isDescribed ? String(actual) : describeValue(actual) });
}
