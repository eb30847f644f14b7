import { ExactNumber } from '../base/exact-json.ts';
import { decimalOf, isIntegral, isNumber, keyOfDecimal, textOfNumber } from './decimal.ts';

/** A JSON schema that cannot be compiled: the keyword and its place, as a JSON pointer (`#/properties/a/not`). */
export class SchemaError extends Error {
  readonly isTooLarge: boolean;
  readonly #path: string;
  readonly #problem: string;

  constructor(path: string, problem: string, isTooLarge = false) {
    super(`${problem} at ${path}`);
    this.#path = path;
    this.#problem = problem;
    this.isTooLarge = isTooLarge;
  }

  /** The same error in one of several schemas. */
  inside(place: string): SchemaError {
    return new SchemaError(`${this.#path} of the ${place}`, this.#problem, this.isTooLarge);
  }

  /** The same error in a schema that is a part of another. Paths of definitions begin at the root already. */
  under(place: string): SchemaError {
    const isInside = !/^#\/(?:\$defs|definitions)\//.test(this.#path);
    return isInside ? new SchemaError(place + this.#path.slice(1), this.#problem, this.isTooLarge) : this;
  }
}

export type SchemaObject = Readonly<Record<string, unknown>>;
export type Schema = SchemaObject | boolean;

export const pointer = (path: string, key: string | number): string =>
  `${path}/${String(key).replaceAll('~', '~0').replaceAll('/', '~1').slice(0, 100)}`;

export const isSchemaObject = (value: unknown): value is SchemaObject =>
  typeof value === 'object' && value !== null && !Array.isArray(value) && !(value instanceof ExactNumber);

export function schemaAt(value: unknown, path: string): Schema {
  if (typeof value === 'boolean') return value;
  if (isSchemaObject(value)) return value.nullable === true ? withNull(value) : value;
  throw new SchemaError(path, 'expected a schema, which is an object or a boolean');
}

const withNulls = new WeakMap<SchemaObject, SchemaObject>();

/** OpenAPI 3.0 has no type `null`. What its `nullable` stands beside allows null too. */
function withNull(schema: SchemaObject): SchemaObject {
  let both = withNulls.get(schema);
  if (both === undefined) {
    const { nullable: _, ...others } = schema;
    both = { anyOf: [others, { type: 'null' }] };
    withNulls.set(schema, both);
  }
  return both;
}

/** Keywords that restrict values and that no grammar of this compiler expresses. */
export const neverSupported = ['$dynamicRef', '$recursiveRef', 'extends', 'disallow'];

export const allTypes = ['object', 'array', 'string', 'number', 'integer', 'boolean', 'null'] as const;
export type TypeName = (typeof allTypes)[number];

/** Keywords that restrict values of one type, and no others. */
export const keywordsOfType: Readonly<Partial<Record<TypeName, readonly string[]>>> = {
  object: [
    ...['properties', 'required', 'additionalProperties', 'patternProperties', 'propertyNames'],
    ...['minProperties', 'maxProperties', 'unevaluatedProperties'],
  ],
  array: [
    ...['items', 'prefixItems', 'additionalItems', 'minItems', 'maxItems', 'uniqueItems'],
    ...['contains', 'unevaluatedItems'],
  ],
  string: ['minLength', 'maxLength', 'pattern', 'format', 'contentEncoding'],
  number: ['minimum', 'maximum', 'exclusiveMinimum', 'exclusiveMaximum', 'multipleOf'],
};

/** Whether a keyword restricts the values of the type beyond the type itself. */
export function isLimited(schema: SchemaObject, type: TypeName = 'string'): boolean {
  const keywords = keywordsOfType[type === 'integer' ? 'number' : type] ?? [];
  return [...keywords, 'const', 'enum'].some((keyword) => schema[keyword] !== undefined);
}

/** The value of `type`, if it is there. `number` has all integers. */
export function declaredTypes({ type }: SchemaObject, path: string): readonly TypeName[] | undefined {
  if (type === undefined) return undefined;
  const list: readonly unknown[] = Array.isArray(type) ? type : [type];
  const wrong = list.find((name) => !allTypes.includes(name as TypeName));
  if (list.length === 0 || wrong !== undefined) {
    throw new SchemaError(pointer(path, 'type'), `expected one of the types ${allTypes.join(', ')}`);
  }
  return list.includes('number') ? (list as TypeName[]).filter((name) => name !== 'integer') : (list as TypeName[]);
}

/** The types that the keywords speak of: `{"properties": ...}` means an object. `format` speaks of strings only if it is alone. */
export function meantTypes(schema: SchemaObject): readonly TypeName[] {
  const meant = (Object.keys(keywordsOfType) as TypeName[]).filter((name) =>
    keywordsOfType[name]!.some((keyword) => schema[keyword] !== undefined && keyword !== 'format'),
  );
  return meant.length === 0 && schema.format !== undefined ? ['string'] : meant;
}

export function typeOfValue(value: unknown): TypeName {
  if (value === null) return 'null';
  if (Array.isArray(value)) return 'array';
  if (isNumber(value)) return isIntegral(decimalOf(textOfNumber(value))) ? 'integer' : 'number';
  return typeof value as TypeName;
}

/** An integer that is not negative. */
export function countOf(schema: SchemaObject, keyword: string, path: string, fallback: number): number {
  const value = schema[keyword];
  if (value === undefined) return fallback;
  const count = isNumber(value) ? Number(value) : Number.NaN;
  if (Number.isInteger(count) && count >= 0) return count;
  throw new SchemaError(pointer(path, keyword), 'expected an integer of at least 0');
}

/** The text of a number. */
export function numberOf(schema: SchemaObject, keyword: string, path: string): string | undefined {
  const value = schema[keyword];
  if (value === undefined) return undefined;
  if (isNumber(value)) return textOfNumber(value);
  throw new SchemaError(pointer(path, keyword), 'expected a number');
}

export function listOf(schema: SchemaObject, keyword: string, path: string): readonly unknown[] | undefined {
  const value = schema[keyword];
  if (value === undefined) return undefined;
  if (Array.isArray(value) && value.length > 0) return value;
  throw new SchemaError(pointer(path, keyword), 'expected a list that is not empty');
}

export function objectOf(schema: SchemaObject, keyword: string, path: string): SchemaObject {
  const value = schema[keyword];
  if (value === undefined) return {};
  if (isSchemaObject(value)) return value;
  throw new SchemaError(pointer(path, keyword), 'expected an object');
}

/** Names as in the schema. Throws SchemaError if it is not a list of texts. */
export function namesIn(schema: SchemaObject, keyword: string, path: string): readonly string[] {
  const value = schema[keyword] ?? [];
  if (Array.isArray(value) && value.every((name) => typeof name === 'string')) return value;
  throw new SchemaError(pointer(path, keyword), 'expected a list of names');
}

/** Equal for values that are equal in JSON Schema: 1 and 1.0, and objects with another order of names. */
export function keyOfValue(value: unknown): string {
  if (isNumber(value)) return keyOfDecimal(decimalOf(textOfNumber(value)));
  if (Array.isArray(value)) return `[${value.map(keyOfValue).join()}]`;
  if (!isSchemaObject(value)) return JSON.stringify(value);
  const names = Object.keys(value).sort((a, b) => (a < b ? -1 : 1));
  return `{${names.map((name) => `${JSON.stringify(name)}:${keyOfValue(value[name])}`).join()}}`;
}
