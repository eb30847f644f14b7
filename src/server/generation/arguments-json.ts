import { readExactJson, writeExactJson } from '../../base/exact-json.ts';
import { isJsonObject } from '../../base/json.ts';
import { RawJson } from '../http/json-pieces.ts';

/**
 * The arguments of a call as an object of the answer, with all digits of numbers. Arguments that `max_tokens` has cut are not JSON, and
 * become an empty object.
 */
export function argumentsJson(json: string): RawJson<object> {
  try {
    const value = readExactJson(json);
    if (isJsonObject(value)) return new RawJson(writeExactJson(value));
  } catch {
    // Not JSON, or more than the reader takes.
  }
  return new RawJson('{}');
}
