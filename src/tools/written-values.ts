import { ExactNumber, readExactJson } from '../base/exact-json.ts';
import { isJsonObject } from '../base/json.ts';
import { pythonToJson } from './python-values.ts';
import type { Tool } from './tool.ts';

/** The kinds of values that a JSON schema can ask for. An integer is a number too. */
export type ValueType = 'string' | 'number' | 'integer' | 'boolean' | 'null' | 'object' | 'array';
const allTypes: readonly ValueType[] = ['string', 'number', 'integer', 'boolean', 'null', 'object', 'array'];

const referencesMax = 32;

/** The types of a parameter's values. A parameter that the schema does not name can have any. */
export function typesOfParameter({ function: { parameters = {} } }: Tool, name: string): ReadonlySet<ValueType> {
  const { properties, additionalProperties } = parameters;
  const isNamed = isJsonObject(properties) && Object.hasOwn(properties, name);
  return typesOfSchema(isNamed ? properties[name] : additionalProperties, parameters);
}

/** `root`: of references. */
export const typesOfSchema = (schema: unknown, root: object): ReadonlySet<ValueType> =>
  new Set(typesOf(schema, root, referencesMax));

export const isOnlyText = (types: ReadonlySet<ValueType>): boolean => types.size === 1 && types.has('string');

function typesOf(schema: unknown, root: object, depth: number): readonly ValueType[] {
  if (!isJsonObject(schema) || depth === 0) return allTypes;
  const inside = (part: unknown): readonly ValueType[] => typesOf(part, root, depth - 1);
  const { $ref, anyOf, oneOf, allOf, type } = schema;
  let types: readonly ValueType[] = typeof $ref === 'string' ? inside(resolve($ref, root)) : allTypes;
  for (const options of [anyOf, oneOf]) {
    if (Array.isArray(options)) types = both(types, options.slice(0, referencesMax).flatMap(inside));
  }
  if (Array.isArray(allOf)) types = allOf.slice(0, referencesMax).map(inside).reduce(both, types);
  if (type !== undefined) types = both(types, withIntegers((Array.isArray(type) ? type : [type]) as ValueType[]));
  const constants = 'const' in schema ? [schema.const] : schema.enum;
  if (Array.isArray(constants)) types = both(types, constants.flatMap(typesOfValue));
  return schema.nullable === true ? [...types, 'null'] : types;
}

const both = (a: readonly ValueType[], b: readonly ValueType[]): readonly ValueType[] =>
  a.filter((type) => b.includes(type));

const withIntegers = (types: readonly ValueType[]): readonly ValueType[] =>
  types.includes('number') ? [...types, 'integer'] : types;

/** The part of a schema that a reference names. */
export function resolve(reference: string, root: object): unknown {
  if (!reference.startsWith('#')) return undefined;
  let found: unknown = root;
  for (const part of reference.slice(1).split('/').slice(1)) {
    const key = part.replaceAll('~1', '/').replaceAll('~0', '~');
    if (typeof found !== 'object' || found === null || !Object.hasOwn(found, key)) return undefined;
    found = (found as Record<string, unknown>)[key];
  }
  return found;
}

function typesOfValue(value: unknown): readonly ValueType[] {
  if (value === null) return ['null'];
  if (Array.isArray(value)) return ['array'];
  if (typeof value === 'number' || value instanceof ExactNumber) {
    return Number.isInteger(Number(value)) ? ['integer', 'number'] : ['number'];
  }
  return typeof value === 'object' ? ['object'] : [typeof value as 'string' | 'boolean'];
}

/** JSON of a value that a model wrote without quotes. What fits no other type is a text. Numbers keep their digits. */
export function asJson(text: string, types: ReadonlySet<ValueType>): string {
  if (!isOnlyText(types)) {
    const trimmed = text.trim();
    for (const json of [trimmed, pythonToJson(trimmed)]) {
      if (json !== undefined && fits(json, types)) return json;
    }
  }
  return JSON.stringify(text);
}

/** Whether the text is JSON of one of the types that is no string. */
function fits(json: string, types: ReadonlySet<ValueType>): boolean {
  try {
    return typesOfValue(readExactJson(json)).some((type) => type !== 'string' && types.has(type));
  } catch {
    return false;
  }
}
