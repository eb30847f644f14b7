import {
  allTypes,
  isSchemaObject,
  pointer,
  type Schema,
  SchemaError,
  type SchemaObject,
  sameValue,
  schemaAt,
  type TypeName,
  typeOfValue,
  typesOf,
} from './schema-keywords.ts';

/** Resolves `$ref`; the path of the schema it names. */
export type Resolve = (reference: unknown, path: string) => { readonly schema: Schema; readonly path: string };

const annotations = new Set([
  ...['title', 'description', 'default', 'examples', 'example', '$schema', '$id', '$comment', 'deprecated', 'readOnly'],
  ...['writeOnly', '$defs', 'definitions', 'contentMediaType', 'contentEncoding', 'discriminator', 'strict', 'name'],
]);

export const hasOnlyAnnotations = (schema: SchemaObject, except: string): boolean =>
  Object.keys(schema).every((key) => key === except || annotations.has(key));

type Merge = (a: unknown, b: unknown, path: string, resolve: Resolve) => unknown;
const greatest: Merge = (a, b) => Math.max(a as number, b as number);
const least: Merge = (a, b) => Math.min(a as number, b as number);
const schemas: Merge = (a, b, path, resolve) => merge(schemaAt(a, path), schemaAt(b, path), path, resolve);

const merges: Readonly<Record<string, Merge>> = {
  type: (a, b, path) => commonTypes(a, b, path),
  required: (a, b) => [...new Set([...(a as unknown[]), ...(b as unknown[])])],
  enum: (a, b) => (a as unknown[]).filter((value) => (b as unknown[]).some((other) => sameValue(value, other))),
  minimum: greatest,
  exclusiveMinimum: greatest,
  minLength: greatest,
  minItems: greatest,
  minProperties: greatest,
  maximum: least,
  exclusiveMaximum: least,
  maxLength: least,
  maxItems: least,
  maxProperties: least,
  items: schemas,
  additionalProperties: schemas,
  propertyNames: schemas,
  anyOf: (a, b, path, resolve) => combinations(a as unknown[], b as unknown[], path, resolve),
};

function commonTypes(a: unknown, b: unknown, path: string): readonly string[] | string {
  const left = typesOf({ type: a }, path);
  const right = typesOf({ type: b }, path);
  const common = left.filter((type) => right.includes(type) || (type === 'integer' && right.includes('number')));
  if (left.includes('number') && right.includes('integer')) common.push('integer');
  if (common.length === 0) throw new SchemaError(pointer(path, 'type'), 'no value has all of the types');
  return [...new Set(common)];
}

const combinationsMax = 64;

function combinations(a: unknown[], b: unknown[], path: string, resolve: Resolve): Schema[] {
  if (a.length * b.length > combinationsMax) {
    throw new SchemaError(path, `more than ${combinationsMax} combinations of \`anyOf\``, true);
  }
  return a.flatMap((left) => b.map((right) => schemas(left, right, path, resolve) as Schema));
}

const depthMax = 50;
let depth = 0;

/** A schema for the values that match both. */
export function merge(a: Schema, b: Schema, path: string, resolve: Resolve): Schema {
  if (a === true) return b;
  if (b === true) return a;
  if (a === false || b === false) return false;
  if (depth >= depthMax) throw new SchemaError(path, 'schemas that are merged without end');
  depth++;
  try {
    return mergeObjects(plain(a, path, resolve), plain(b, path, resolve), path, resolve);
  } finally {
    depth--;
  }
}

/**
 * Merges keywords of a schema with a part of the same schema: an element of `allOf` or `anyOf`, or what `$ref` names. `unevaluatedProperties`
 * knows the properties of all parts, so it stays beside the merged keywords.
 */
export function mergeParts(whole: SchemaObject, merged: (keywords: SchemaObject) => Schema): Schema {
  const { unevaluatedProperties, ...keywords } = whole;
  const schema = merged(keywords);
  return unevaluatedProperties === undefined || !isSchemaObject(schema) ? schema : { ...schema, unevaluatedProperties };
}

/** Without `$ref`, `allOf`, `const` and `unevaluatedProperties`, which other keywords express. */
function plain(schema: SchemaObject, path: string, resolve: Resolve): SchemaObject {
  const { $ref, allOf, const: constant, unevaluatedProperties, ...rest } = schema;
  let result: Schema = isSchemaObject(unevaluatedProperties) ? { ...rest, unevaluatedProperties } : rest;
  if (constant !== undefined) result = merge({ enum: [constant] }, result, path, resolve);
  if ($ref !== undefined) result = merge(resolve($ref, path).schema, result, path, resolve);
  if (Array.isArray(allOf)) {
    for (const part of allOf) result = merge(result, schemaAt(part, pointer(path, 'allOf')), path, resolve);
  }
  if (!isSchemaObject(result)) result = result ? {} : { enum: [] };
  return unevaluatedProperties === false ? closed(result, path) : result;
}

/** `unevaluatedProperties: false`, as `additionalProperties`. */
function closed(schema: SchemaObject, path: string): SchemaObject {
  if (schema.anyOf !== undefined || schema.oneOf !== undefined) {
    const place = pointer(path, 'unevaluatedProperties');
    throw new SchemaError(
      place,
      '`unevaluatedProperties` beside `anyOf` or `oneOf` cannot be merged with other schemas',
    );
  }
  return { additionalProperties: false, ...schema };
}

function mergeObjects(a: SchemaObject, b: SchemaObject, path: string, resolve: Resolve): SchemaObject {
  if (hasTuple(a) || hasTuple(b)) {
    const [tuple, left, right] = [mergeTuples(a, b, path, resolve), withoutTuple(a), withoutTuple(b)];
    return { ...mergeObjects(left, right, path, resolve), ...tuple };
  }
  const result: Record<string, unknown> = { ...a };
  for (const [keyword, value] of Object.entries(b)) {
    const other = a[keyword];
    if (keyword === 'properties' || other === undefined || sameValue(other, value)) result[keyword] = other ?? value;
    else if (Object.hasOwn(merges, keyword))
      result[keyword] = merges[keyword]!(other, value, pointer(path, keyword), resolve);
    else if (!annotations.has(keyword)) {
      throw new SchemaError(pointer(path, keyword), `two different values of \`${keyword}\` cannot be merged`);
    }
  }
  if (a.properties !== undefined || b.properties !== undefined)
    result.properties = mergeProperties(a, b, path, resolve);
  if (a.patternProperties === undefined)
    Object.assign(result, patternsBeside(b, a.additionalProperties, path, resolve));
  if (b.patternProperties === undefined)
    Object.assign(result, patternsBeside(a, b.additionalProperties, path, resolve));
  return result;
}

/** `additionalProperties` of one schema also holds for the names of the other's `patternProperties`. */
function patternsBeside(schema: SchemaObject, additional: unknown, path: string, resolve: Resolve): SchemaObject {
  const { patternProperties } = schema;
  if (additional === undefined || !isSchemaObject(patternProperties)) return {};
  const place = pointer(path, 'patternProperties');
  const merged = Object.entries(patternProperties).map(([key, value]) => [
    key,
    schemas(value, additional, place, resolve),
  ]);
  return { patternProperties: Object.fromEntries(merged) };
}

const hasTuple = ({ items, prefixItems }: SchemaObject): boolean => Array.isArray(items) || Array.isArray(prefixItems);

const withoutTuple = ({ items: _, prefixItems: __, additionalItems: ___, ...rest }: SchemaObject): SchemaObject => rest;

/** The schemas of the first elements, and that of all others, which `items` has after `prefixItems` and alone. */
function tupleOf({ items, prefixItems, additionalItems }: SchemaObject): { firsts: unknown[]; rest: unknown } {
  if (Array.isArray(items)) return { firsts: items, rest: additionalItems };
  return { firsts: Array.isArray(prefixItems) ? prefixItems : [], rest: items };
}

/** Element by element: `items` of one schema also holds for the `prefixItems` of the other. */
function mergeTuples(a: SchemaObject, b: SchemaObject, path: string, resolve: Resolve): SchemaObject {
  const [left, right] = [tupleOf(a), tupleOf(b)];
  const both = (first: unknown, second: unknown, keyword: string): unknown =>
    schemas(first ?? true, second ?? true, pointer(path, keyword), resolve);
  const prefixItems = Array.from({ length: Math.max(left.firsts.length, right.firsts.length) }, (_, i) =>
    both(left.firsts[i] ?? left.rest, right.firsts[i] ?? right.rest, 'prefixItems'),
  );
  const hasRest = left.rest !== undefined || right.rest !== undefined;
  return { prefixItems, ...(hasRest ? { items: both(left.rest, right.rest, 'items') } : {}) };
}

function mergeProperties(a: SchemaObject, b: SchemaObject, path: string, resolve: Resolve): SchemaObject {
  const left = isSchemaObject(a.properties) ? a.properties : {};
  const right = isSchemaObject(b.properties) ? b.properties : {};
  const result: Record<string, unknown> = {};
  for (const name of new Set([...Object.keys(left), ...Object.keys(right)])) {
    const first = Object.hasOwn(left, name) ? left[name] : (a.additionalProperties ?? true);
    const second = Object.hasOwn(right, name) ? right[name] : (b.additionalProperties ?? true);
    Object.defineProperty(result, name, {
      value: schemas(first, second, pointer(path, name), resolve),
      enumerable: true,
      writable: true,
      configurable: true,
    });
  }
  return result;
}

/** Whether no value can match both, as far as types, constants and required constants show. */
export function areDisjoint(a: Schema, b: Schema, path: string, resolve: Resolve): boolean {
  if (a === false || b === false) return true;
  if (a === true || b === true) return false;
  const [left, right] = [plain(a, path, resolve), plain(b, path, resolve)];
  if (left.enum !== undefined && right.enum !== undefined) {
    return (left.enum as unknown[]).every(
      (value) => !(right.enum as unknown[]).some((other) => sameValue(value, other)),
    );
  }
  const common = [...commonValueTypes(left, right, path), ...commonValueTypes(right, left, path)];
  if (common.some((type) => type !== 'object')) return false;
  if (common.length === 0) return true;
  const names = Array.isArray(left.required) ? left.required : [];
  return names.some((name: unknown) => {
    if (typeof name !== 'string' || !Array.isArray(right.required) || !right.required.includes(name)) return false;
    const [mine, other] = [left.properties, right.properties];
    if (!isSchemaObject(mine) || !isSchemaObject(other) || !Object.hasOwn(mine, name) || !Object.hasOwn(other, name))
      return false;
    const [first, second] = [schemaAt(mine[name], path), schemaAt(other[name], path)];
    const areConstants = [first, second].every(
      (schema) => isSchemaObject(schema) && plain(schema, path, resolve).enum !== undefined,
    );
    return areConstants && areDisjoint(first, second, path, resolve);
  });
}

/** The types of values that the grammar of the first schema allows and the second schema accepts. Without `type`, it accepts all types. */
function commonValueTypes(allowed: SchemaObject, accepting: SchemaObject, path: string): readonly string[] {
  const accepted = valueTypes(accepting.type === undefined ? allTypes : typesOf(accepting, path), accepting);
  const hasOptions = allowed.anyOf !== undefined || allowed.oneOf !== undefined;
  const names = hasOptions && allowed.type === undefined ? allTypes : typesOf(allowed, path);
  return valueTypes(names, allowed).filter((type) => accepted.includes(type));
}

function valueTypes(names: readonly TypeName[], schema: SchemaObject): readonly string[] {
  const types = schema.enum === undefined ? names : (schema.enum as unknown[]).map(typeOfValue);
  return types.map((name) => (name === 'integer' ? 'number' : name));
}
