import { ExactNumber, readExactJson } from '../base/exact-json.ts';
import { isJsonObject, type JsonObject } from '../base/json.ts';
import { SchemaReferences } from '../grammar/schema-references.ts';
import { pythonToJson } from './python-values.ts';

/** The kinds of values that a JSON schema can ask for. An integer is a number too. */
export type ValueType = 'string' | 'number' | 'integer' | 'boolean' | 'null' | 'object' | 'array';
const allTypes: readonly ValueType[] = ['string', 'number', 'integer', 'boolean', 'null', 'object', 'array'];

/** The types of a parameter's values. A parameter that the schema does not name can have any. */
export function typesOfParameter(parameters: JsonObject | undefined, name: string): ReadonlySet<ValueType> {
  return typesOfBits(parameters === undefined ? allBits : new TypeReader(parameters).readMember(parameters, name));
}

const typesOfBits = (bits: number): ReadonlySet<ValueType> =>
  new Set(allTypes.filter((type) => (bits & bitOf(type)) !== 0));

export const isOnlyText = (types: ReadonlySet<ValueType>): boolean => types.size === 1 && types.has('string');

const bitOf = (type: ValueType): number => 1 << allTypes.indexOf(type);
const allBits = 2 ** allTypes.length - 1;
const known = new WeakMap<JsonObject, SchemaReferences>();

/** Of the schema of a tool's parameters, which is read for each parameter. */
function referencesOf(root: JsonObject): SchemaReferences {
  const references = known.get(root) ?? new SchemaReferences(root);
  known.set(root, references);
  return references;
}

/** A longer chain of references says nothing. */
const depthMax = 200;
/** The same for the schema of all parameters, whose parts are read for each name. */
const memberDepthMax = 8;

/** Reads which types a schema allows. Each part is read once, however many references lead to it. */
class TypeReader {
  readonly #references: SchemaReferences;
  readonly #known = new Map<object, number>();
  #depth = 0;

  constructor(root: JsonObject) {
    this.#references = referencesOf(root);
  }

  readonly read = (schema: unknown): number => {
    if (!isJsonObject(schema)) return allBits;
    const known = this.#known.get(schema);
    if (known !== undefined || this.#depth >= depthMax) return known ?? allBits;
    // A schema that contains itself allows anything there.
    this.#known.set(schema, allBits);
    this.#depth++;
    const bits = this.#bitsOf(schema);
    this.#depth--;
    this.#known.set(schema, bits);
    return bits;
  };

  /** The types of a member of the objects that the schema describes. */
  readMember(schema: unknown, name: string, depth = 0): number {
    if (!isJsonObject(schema) || depth > memberDepthMax) return allBits;
    const { properties, additionalProperties } = schema;
    const isNamed = isJsonObject(properties) && Object.hasOwn(properties, name);
    const own = this.read(isNamed ? properties[name] : additionalProperties);
    return own & this.#combined(schema, (part) => this.readMember(part, name, depth + 1));
  }

  /** What the keywords that combine schemas leave of all types. */
  #combined(schema: JsonObject, read: (part: unknown) => number): number {
    const { $ref, anyOf, oneOf, allOf } = schema;
    let bits = typeof $ref === 'string' ? read(this.#references.target($ref, schema)?.schema) : allBits;
    for (const options of [anyOf, oneOf]) if (Array.isArray(options)) bits &= union(options.map(read));
    if (Array.isArray(allOf)) for (const part of allOf) bits &= read(part);
    return bits;
  }

  #bitsOf(schema: JsonObject): number {
    const { type } = schema;
    let bits = this.#combined(schema, this.read);
    if (type !== undefined) bits &= union((Array.isArray(type) ? type : [type]).map(bitsOfName));
    const constants = 'const' in schema ? [schema.const] : schema.enum;
    if (Array.isArray(constants)) bits &= union(constants.map((value) => union(typesOfValue(value).map(bitOf))));
    return schema.nullable === true ? bits | bitOf('null') : bits;
  }
}

const union = (parts: readonly number[]): number => parts.reduce((all, part) => all | part, 0);

/** A number can be an integer. Names that are no types allow nothing. */
function bitsOfName(name: unknown): number {
  if (name === 'number') return bitOf('number') | bitOf('integer');
  return allTypes.includes(name as ValueType) ? bitOf(name as ValueType) : 0;
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
