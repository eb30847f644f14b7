import { ExactNumber } from './exact-json.ts';

/** Plain data without functions or bytes, which can be sent to another process. */
export type JsonValue = null | boolean | number | string | readonly JsonValue[] | JsonObject;
/** An object of JSON: its values are `JsonValue`s. */
export interface JsonObject {
  readonly [name: string]: JsonValue;
}

/** An `ExactNumber` is no object of JSON. */
export const isJsonObject = (value: unknown): value is JsonObject =>
  typeof value === 'object' && value !== null && !Array.isArray(value) && !(value instanceof ExactNumber);

/** The object that a text has. `toError`: the error for a text that has none. */
export function parseJsonObject(text: string, toError: (problem: string) => Error): JsonObject {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    throw toError('it is not JSON');
  }
  if (isJsonObject(value)) return value;
  throw toError('it is not a JSON object');
}
