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
  typeof value === 'object' && value !== null && !Array.isArray(value);

export function schemaAt(value: unknown, path: string): Schema {
  if (typeof value === 'boolean' || isSchemaObject(value)) return value;
  throw new SchemaError(path, 'expected a schema, which is an object or a boolean');
}

/** Keywords that restrict values and cannot be expressed as a grammar. */
const unsupported = [
  ...['not', 'if', 'then', 'else', 'dependentRequired', 'dependentSchemas', 'dependencies', 'contains'],
  ...['minContains', 'maxContains', 'unevaluatedItems', '$dynamicRef', '$recursiveRef', 'extends', 'disallow'],
];

/** Values that restrict nothing. */
const neutral: Readonly<Record<string, (value: unknown) => boolean>> = {
  uniqueItems: (value) => value === false,
  unevaluatedProperties: (value) => typeof value === 'boolean',
  multipleOf: () => false,
};

export function checkKeywords(schema: SchemaObject, path: string): void {
  for (const keyword of unsupported) {
    if (schema[keyword] !== undefined) {
      throw new SchemaError(pointer(path, keyword), `the keyword \`${keyword}\` is not supported`);
    }
  }
  for (const [keyword, isNeutral] of Object.entries(neutral)) {
    const value = schema[keyword];
    if (value === undefined || isNeutral(value)) continue;
    const isHarmless =
      (keyword === 'multipleOf' && value === 1 && typesOf(schema, path).every((type) => type !== 'number')) ||
      (keyword === 'uniqueItems' && (schema.maxItems === 0 || schema.maxItems === 1));
    if (!isHarmless) throw new SchemaError(pointer(path, keyword), `the keyword \`${keyword}\` is not supported`);
  }
}

export const allTypes = ['object', 'array', 'string', 'number', 'integer', 'boolean', 'null'] as const;
export type TypeName = (typeof allTypes)[number];

/** Keywords that restrict values of one type, and no others. */
export const keywordsOfType: Readonly<Partial<Record<TypeName, readonly string[]>>> = {
  object: [
    ...['properties', 'required', 'additionalProperties', 'patternProperties', 'propertyNames'],
    ...['minProperties', 'maxProperties', 'unevaluatedProperties'],
  ],
  array: ['items', 'prefixItems', 'additionalItems', 'minItems', 'maxItems', 'uniqueItems'],
  string: ['minLength', 'maxLength', 'pattern', 'format'],
  number: ['minimum', 'maximum', 'exclusiveMinimum', 'exclusiveMaximum', 'multipleOf'],
};

/**
 * The types that a schema allows. Without `type`, those that its keywords speak of: `{"properties": ...}` means an object.
 */
export function typesOf(schema: SchemaObject, path: string): readonly TypeName[] {
  const { type } = schema;
  if (type !== undefined) {
    const list: readonly unknown[] = Array.isArray(type) ? type : [type];
    const wrong = list.find((name) => !allTypes.includes(name as TypeName));
    if (list.length === 0 || wrong !== undefined) {
      throw new SchemaError(pointer(path, 'type'), `expected one of the types ${allTypes.join(', ')}`);
    }
    return list.includes('number') ? (list as TypeName[]).filter((name) => name !== 'integer') : (list as TypeName[]);
  }
  const meant = (Object.keys(keywordsOfType) as TypeName[]).filter((name) =>
    keywordsOfType[name]!.some((keyword) => schema[keyword] !== undefined && keyword !== 'format'),
  );
  if (meant.length === 0 && schema.format !== undefined) return ['string'];
  return meant.length > 0 ? meant : ['object', 'array', 'string', 'number', 'boolean', 'null'];
}

export function typeOfValue(value: unknown): TypeName {
  if (value === null) return 'null';
  if (Array.isArray(value)) return 'array';
  if (typeof value === 'number') return Number.isInteger(value) ? 'integer' : 'number';
  return typeof value as TypeName;
}

/** An integer that is not negative. */
export function countOf(schema: SchemaObject, keyword: string, path: string, fallback: number): number {
  const value = schema[keyword];
  if (value === undefined) return fallback;
  if (Number.isInteger(value) && (value as number) >= 0) return value as number;
  throw new SchemaError(pointer(path, keyword), 'expected an integer of at least 0');
}

export function numberOf(schema: SchemaObject, keyword: string, path: string): number | undefined {
  const value = schema[keyword];
  if (value === undefined || (typeof value === 'number' && Number.isFinite(value))) return value;
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

export const sameValue = (a: unknown, b: unknown): boolean => JSON.stringify(sorted(a)) === JSON.stringify(sorted(b));

function sorted(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(sorted);
  if (!isSchemaObject(value)) return value;
  const keys = Object.keys(value).sort((a, b) => (a < b ? -1 : 1));
  return keys.map((key) => [key, sorted(value[key])]);
}
