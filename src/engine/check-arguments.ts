/** Arguments of the library, for callers in JavaScript. TypeScript checks the others. */
import { describeValue } from '../base/describe-value.ts';
import { invalidParameter } from '../core/errors.ts';
import type { AsyncEngine } from './contract.ts';

/** An argument that must be an object. @throws invalidParameter */
export function checkIsObject(parameter: string, value: unknown): void {
  if (typeof value === 'object' && value !== null) return;
  throw invalidParameter({ parameter, expected: 'an object', actual: describeValue(value) });
}

/** @throws invalidParameter */
export function checkIsListOfObjects(parameter: string, value: unknown): void {
  checkIsList(parameter, value, 'a list of objects');
  for (const [i, item] of (value as unknown[]).entries()) checkIsObject(`${parameter}[${i}]`, item);
}

/** @throws invalidParameter */
export function checkIsList(parameter: string, value: unknown, expected: string): void {
  if (Array.isArray(value)) return;
  throw invalidParameter({ parameter, expected, actual: describeValue(value) });
}

/** @throws invalidParameter */
export function checkSignal(signal: unknown): void {
  if (signal === undefined || signal === null || signal instanceof AbortSignal) return;
  throw invalidParameter({ parameter: 'signal', expected: 'an AbortSignal', actual: describeValue(signal) });
}

/** @throws invalidParameter */
export function checkToken(token: unknown, vocabSize: number): void {
  if (Number.isInteger(token) && (token as number) >= 0 && (token as number) < vocabSize) return;
  throw invalidParameter({
    parameter: 'token',
    expected: `a token id from 0 to ${vocabSize - 1}`,
    actual: describeValue(token),
  });
}

/** @throws invalidParameter */
export function checkTokens(tokens: unknown, vocabSize: number): void {
  const list = Object(tokens) as ArrayLike<unknown>;
  if (list !== tokens || !Number.isSafeInteger(list.length))
    throw invalidParameter({ parameter: 'tokens', expected: 'a list of token ids', actual: describeValue(tokens) });
  for (let i = 0; i < list.length; i++) checkToken(list[i], vocabSize);
}

/** A promise of an engine is refused: `await` is missing. @throws invalidParameter */
export function checkIsEngine(engine: unknown): void {
  if (typeof (engine as Partial<AsyncEngine> | undefined | null)?.generate === 'function') return;
  const expected = 'an engine: `await createEngine({ model })`';
  throw invalidParameter({ parameter: 'engine', expected, actual: describeValue(engine) });
}
