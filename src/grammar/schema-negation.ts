import { byEntries, byName } from '../base/by-name.ts';
import { namesOf } from '../base/exact-json.ts';
import { patternOfFormat } from './formats.ts';
import type { Conjunct, SchemaAtoms } from './schema-atoms.ts';
import {
  allTypes,
  countOf,
  declaredTypes,
  isSchemaObject,
  listOf,
  namesIn,
  numberOf,
  objectOf,
  pointer,
  type Schema,
  type SchemaObject,
  type TypeName,
} from './schema-keywords.ts';

/** A schema that a value must match, or must not match. */
export interface Link {
  readonly kind: 'schema' | 'not';
  readonly schema: Schema;
  readonly path: string;
  readonly owners: readonly number[];
}

/** What follows from the negation of a keyword, or from one that combines schemas, and that no keyword says. */
export interface Facts {
  /** Members that the object does not have. */
  readonly absent?: readonly string[];
  /** The value of a member, without saying anything about other members. */
  readonly member?: { readonly name: string; readonly value: Link };
  /** The value of an element. */
  readonly element?: { readonly index: number; readonly value: Link };
  /** Of all elements. */
  readonly each?: Link;
  /** Of one element or more. */
  readonly some?: Link;
  readonly notPattern?: string;
  /** The text of a number. */
  readonly notMultipleOf?: string;
  readonly notValues?: readonly unknown[];
}

export const annotations: ReadonlySet<string> = new Set([
  ...['title', 'description', 'default', 'examples', 'example', '$schema', '$id', '$comment', 'deprecated', 'readOnly'],
  ...['writeOnly', '$defs', 'definitions', 'contentMediaType', 'contentEncoding', 'discriminator', 'strict', 'name'],
  ...['$anchor', '$vocabulary', 'id', 'nullable', 'contentSchema', 'externalDocs', 'xml'],
]);

/** The ways in which a value can break a keyword. Undefined: they cannot be expressed, so these values are not allowed. */
type Negation = (
  schema: SchemaObject,
  path: string,
  atoms: SchemaAtoms,
) => readonly (readonly Conjunct[])[] | undefined;

/** A value of another type than the keyword restricts matches the keyword. */
const typed = (keywords: SchemaObject, path: string, atoms: SchemaAtoms, facts?: Facts): Conjunct[] => [
  atoms.plain(keywords, path, facts),
];

const not = (schema: unknown, path: string, atoms: SchemaAtoms): Link => ({
  ...atoms.link(schema, path),
  kind: 'not',
});

/** The number of characters, elements or members is below the minimum. */
const fewer =
  (type: TypeName, minimum: string, maximum: string): Negation =>
  (schema, path, atoms) => {
    const min = countOf(schema, minimum, path, 0);
    return min === 0 ? [] : [typed({ type, [maximum]: min - 1 }, path, atoms)];
  };

const more =
  (type: TypeName, maximum: string, minimum: string): Negation =>
  (schema, path, atoms) => [typed({ type, [minimum]: countOf(schema, maximum, path, 0) + 1 }, path, atoms)];

const bound =
  (keyword: string, opposite: string): Negation =>
  (schema, path, atoms) => {
    numberOf(schema, keyword, path);
    return [typed({ type: 'number', [opposite]: schema[keyword] }, path, atoms)];
  };

const values: Negation = (schema, path, atoms) => {
  const given = schema.enum === undefined ? [schema.const] : listOf(schema, 'enum', path)!;
  const composed = given.filter((value) => Array.isArray(value) || isSchemaObject(value));
  if (composed.length === 0) return [[atoms.plain({}, path, { notValues: given })]];
  // An object or an array differs from a constant in one of its parts.
  const parts = composed.map((value) => not(schemaOfValue(value), path, atoms));
  const scalars = given.filter((value) => !Array.isArray(value) && !isSchemaObject(value));
  return [[atoms.plain({}, path, { notValues: scalars }), ...parts]];
};

function schemaOfValue(value: unknown): SchemaObject {
  if (Array.isArray(value)) {
    return { type: 'array', minItems: value.length, maxItems: value.length, prefixItems: value.map(constant) };
  }
  const names = namesOf(value as object);
  const properties = byEntries(names.map((name) => [name, constant((value as SchemaObject)[name])]));
  return { type: 'object', required: names, maxProperties: names.length, properties };
}

const constant = (value: unknown): SchemaObject =>
  Array.isArray(value) || isSchemaObject(value) ? schemaOfValue(value) : { const: value };

function otherTypes(schema: SchemaObject, path: string, atoms: SchemaAtoms): readonly (readonly Conjunct[])[] {
  const types = declaredTypes(schema, path)!;
  const others = allTypes.filter((type) => !types.includes(type) && type !== 'integer' && type !== 'number');
  const options: Conjunct[][] = others.length === 0 ? [] : [[atoms.plain({ type: others }, path)]];
  if (!types.includes('number') && types.includes('integer')) {
    options.push(typed({ type: 'number' }, path, atoms, { notMultipleOf: '1' }));
  } else if (!types.includes('number')) options.push(typed({ type: 'number' }, path, atoms));
  return options;
}

const combinations: Readonly<Record<string, Negation>> = byName({
  allOf: (schema, path, atoms) =>
    listOf(schema, 'allOf', path)!.map((part, i) => [not(part, pointer(pointer(path, 'allOf'), i), atoms)]),
  anyOf: (schema, path, atoms) => [
    listOf(schema, 'anyOf', path)!.map((part, i) => not(part, pointer(pointer(path, 'anyOf'), i), atoms)),
  ],
  not: (schema, path, atoms) => [[atoms.link(schema.not, pointer(path, 'not'))]],
  if: (schema, path, atoms) => {
    const condition = atoms.link(schema.if, pointer(path, 'if'));
    const opposite: Link = { ...condition, kind: 'not' };
    return [
      ...(schema.then === undefined ? [] : [[condition, not(schema.then, pointer(path, 'then'), atoms)]]),
      ...(schema.else === undefined ? [] : [[opposite, not(schema.else, pointer(path, 'else'), atoms)]]),
    ];
  },
  // A text that is no `oneOf` matches none of the options, or two of them.
  oneOf: (schema, path, atoms) => {
    const place = pointer(path, 'oneOf');
    const options = listOf(schema, 'oneOf', path)!;
    const pairs = options.length > 5 ? [] : options.flatMap((a, i) => options.slice(i + 1).map((b) => [a, b]));
    return [
      options.map((option, i) => not(option, pointer(place, i), atoms)),
      ...pairs.map((pair) => pair.map((option) => atoms.link(option, place))),
    ];
  },
  dependentRequired: (schema, path, atoms) => {
    const map = objectOf(schema, 'dependentRequired', path);
    return namesOf(map).flatMap((name) =>
      namesIn(map, name, path).map((other) =>
        typed({ type: 'object', required: [name] }, path, atoms, { absent: [other] }),
      ),
    );
  },
  dependentSchemas: (schema, path, atoms) => {
    const map = objectOf(schema, 'dependentSchemas', path);
    return namesOf(map).map((name) => [
      ...typed({ type: 'object', required: [name] }, path, atoms),
      not(map[name], pointer(path, name), atoms),
    ]);
  },
});

const ofValues: Readonly<Record<string, Negation>> = byName({
  type: otherTypes,
  const: values,
  enum: values,
  minimum: bound('minimum', 'exclusiveMaximum'),
  maximum: bound('maximum', 'exclusiveMinimum'),
  exclusiveMinimum: bound('exclusiveMinimum', 'maximum'),
  exclusiveMaximum: bound('exclusiveMaximum', 'minimum'),
  multipleOf: (schema, path, atoms) => [
    typed({ type: 'number' }, path, atoms, { notMultipleOf: numberOf(schema, 'multipleOf', path)! }),
  ],
  minLength: fewer('string', 'minLength', 'maxLength'),
  maxLength: more('string', 'maxLength', 'minLength'),
  pattern: (schema, path, atoms) =>
    typeof schema.pattern === 'string'
      ? [typed({ type: 'string' }, path, atoms, { notPattern: schema.pattern })]
      : undefined,
  // A pattern has only a part of the format's texts.
  format: ({ format }) => (typeof format === 'string' && patternOfFormat(format) !== undefined ? undefined : []),
});

const ofParts: Readonly<Record<string, Negation>> = byName({
  minItems: fewer('array', 'minItems', 'maxItems'),
  maxItems: more('array', 'maxItems', 'minItems'),
  items: (schema, path, atoms) => {
    if (Array.isArray(schema.items) || schema.prefixItems !== undefined) return undefined;
    return [typed({ type: 'array' }, path, atoms, { some: not(schema.items, pointer(path, 'items'), atoms) })];
  },
  prefixItems: (schema, path, atoms) =>
    listOf(schema, 'prefixItems', path)!.map((part, index) => {
      const value = not(part, pointer(pointer(path, 'prefixItems'), index), atoms);
      return typed({ type: 'array', minItems: index + 1 }, path, atoms, { element: { index, value } });
    }),
  contains: (schema, path, atoms) => {
    if (schema.minContains !== undefined || schema.maxContains !== undefined) return undefined;
    return [typed({ type: 'array' }, path, atoms, { each: not(schema.contains, pointer(path, 'contains'), atoms) })];
  },
  uniqueItems: ({ uniqueItems }) => (uniqueItems === true ? undefined : []),
  minProperties: fewer('object', 'minProperties', 'maxProperties'),
  maxProperties: more('object', 'maxProperties', 'minProperties'),
  required: (schema, path, atoms) =>
    namesIn(schema, 'required', path).map((name) => typed({ type: 'object' }, path, atoms, { absent: [name] })),
  properties: (schema, path, atoms) => {
    const properties = objectOf(schema, 'properties', path);
    return namesOf(properties).map((name) => {
      const value = not(properties[name], pointer(pointer(path, 'properties'), name), atoms);
      return typed({ type: 'object', required: [name] }, path, atoms, { member: { name, value } });
    });
  },
  additionalProperties: ({ additionalProperties }) => (additionalProperties === true ? [] : undefined),
});

/** Keywords that others read. */
const companions = new Set(['then', 'else', 'minContains', 'maxContains']);

/** The parts of a schema that a value must not match. False: every value matches the schema. */
export function negationOf({ path }: Link, schema: SchemaObject, atoms: SchemaAtoms): readonly Conjunct[] | false {
  const options: (readonly Conjunct[])[] = [];
  let unsupported: string | undefined;
  const keywords = Object.keys(schema).filter((keyword) => !annotations.has(keyword) && !companions.has(keyword));
  for (const keyword of keywords) {
    if (keyword === '$ref') {
      options.push([{ kind: 'not', owners: [], ...atoms.targetOf(schema, path) }]);
      continue;
    }
    const negation = combinations[keyword] ?? ofValues[keyword] ?? ofParts[keyword];
    const ways = negation === undefined ? (knownKeywords.has(keyword) ? undefined : []) : negation(schema, path, atoms);
    if (ways === undefined) unsupported ??= keyword;
    else options.push(...ways);
  }
  if (options.length === 1) return options[0]!;
  if (options.length > 1) return [atoms.branch(options, path)];
  if (unsupported === undefined) return false;
  atoms.report(pointer(path, unsupported), `the negation of \`${unsupported}\` is not supported`);
  return [];
}

/** Keywords that restrict values and have no negation. */
const knownKeywords = new Set([
  ...['patternProperties', 'propertyNames', 'unevaluatedProperties', 'unevaluatedItems', 'additionalItems'],
  ...['dependencies', '$dynamicRef', '$recursiveRef', 'extends', 'disallow'],
]);
