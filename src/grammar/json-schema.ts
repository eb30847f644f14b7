import {
  choice,
  type Expression,
  empty,
  type Grammar,
  nothing,
  optional,
  repeat,
  rule,
  sequence,
  text,
} from './expression.ts';
import { anyInteger, integerBetween, numberBetween } from './json-number.ts';
import { keyExcept, stringOfFormat, stringOfLength, stringWithPattern } from './json-text.ts';
import { type GrammarLimits, grammarLimits } from './limits.ts';
import { RegexError } from './regex.ts';
import { type Counts, countsOf, numberBoundsOf } from './schema-bounds.ts';
import {
  checkKeywords,
  isSchemaObject,
  listOf,
  objectOf,
  pointer,
  type Schema,
  SchemaError,
  type SchemaObject,
  schemaAt,
  type TypeName,
  typeOfValue,
  typesOf,
} from './schema-keywords.ts';
import { areDisjoint, hasOnlyAnnotations, merge, mergeParts } from './schema-merge.ts';
import { satisfies } from './schema-value.ts';

/** How values are laid out. */
export interface JsonLayout {
  /** Behind brackets and commas, and before closing brackets. */
  readonly space: Expression;
  readonly colon: Expression;
  readonly comma: Expression;
}

const depthMax = 100;

/** Collects the rules of a grammar that has JSON in it. Several schemas can share it: one tool has one schema. */
export class JsonGrammar {
  readonly rules = new Map<string, Expression>();
  readonly #layout: JsonLayout;
  readonly #schemasMax: number;
  #schemas = 0;
  #serial = 0;

  constructor(layout: JsonLayout, { schemas }: GrammarLimits = grammarLimits) {
    this.#layout = layout;
    this.#schemasMax = schemas;
    this.#addValues();
  }

  /** Any JSON value of a type. */
  readonly value = rule('value');
  readonly object = rule('object');

  /** Values that match the schema; not all of them, but none that does not match. Throws SchemaError. */
  schema(root: Schema): Expression {
    return new SchemaReader(root, this).read();
  }

  toGrammar(root: Expression): Grammar {
    return { root, rules: this.rules };
  }

  countSchema(path: string): void {
    const max = this.#schemasMax;
    if (++this.#schemas > max) throw new SchemaError(path, `more than ${max} schemas`, true);
  }

  newRule(expression: Expression): Expression {
    const name = `#${++this.#serial}`;
    this.rules.set(name, expression);
    return rule(name);
  }

  member(key: Expression, value: Expression): Expression {
    return sequence(key, this.#layout.colon, value);
  }

  enclosed(open: string, inside: Expression | undefined, close: string): Expression {
    const { space } = this.#layout;
    const empty = sequence(text(open), space, text(close));
    return inside === undefined ? empty : sequence(text(open), space, inside, space, text(close));
  }

  /** `count` items are there at least, and `max` at most. */
  list(item: Expression, min: number, max: number): Expression {
    if (max === 0) return empty;
    const more = repeat(sequence(this.#layout.comma, item), Math.max(0, min - 1), max - 1);
    return min === 0 ? optional(sequence(item, more)) : sequence(item, more);
  }

  get comma(): Expression {
    return this.#layout.comma;
  }

  #addValues(): void {
    const string = rule('string');
    this.rules.set('string', stringOfLength(0, Infinity));
    this.rules.set('number', numberBetween({}));
    this.rules.set('object', this.#bracketed('{', this.member(string, this.value), '}'));
    this.rules.set('array', this.#bracketed('[', this.value, ']'));
    this.rules.set(
      'value',
      choice(this.object, rule('array'), string, rule('number'), text('true'), text('false'), text('null')),
    );
  }

  #bracketed(open: string, item: Expression, close: string): Expression {
    return choice(this.enclosed(open, undefined, close), this.enclosed(open, this.list(item, 1, Infinity), close));
  }
}

/** Reads one schema with its definitions. */
class SchemaReader {
  readonly #root: Schema;
  readonly #grammar: JsonGrammar;
  readonly #references = new Map<string, Expression>();
  #depth = 0;

  constructor(root: Schema, grammar: JsonGrammar) {
    this.#root = root;
    this.#grammar = grammar;
  }

  read(): Expression {
    return this.#reference('#', this.#root);
  }

  /** A schema that can be named, so that it can contain itself. */
  #reference(path: string, schema: Schema): Expression {
    const known = this.#references.get(path);
    if (known !== undefined) return known;
    const name = `${path} ${this.#grammar.rules.size}`;
    this.#references.set(path, rule(name));
    this.#grammar.rules.set(name, nothing);
    this.#grammar.rules.set(name, this.#schema(schema, path));
    return rule(name);
  }

  readonly #resolve = (reference: unknown, path: string): { schema: Schema; path: string } => {
    const place = pointer(path, '$ref');
    if (typeof reference !== 'string') throw new SchemaError(place, 'expected a text');
    if (!reference.startsWith('#'))
      throw new SchemaError(place, 'only references inside of the schema (`#/...`) are supported');
    let found: unknown = this.#root;
    for (const part of reference.slice(1).split('/').slice(1)) {
      const key = decoded(part).replaceAll('~1', '/').replaceAll('~0', '~');
      const isThere = typeof found === 'object' && found !== null && Object.hasOwn(found, key);
      found = isThere ? (found as Record<string, unknown>)[key] : undefined;
    }
    if (found === undefined || (reference !== '#' && !reference.startsWith('#/'))) {
      throw new SchemaError(place, `the schema has no ${JSON.stringify(reference.slice(0, 100))}`);
    }
    return { schema: schemaAt(found, reference), path: reference };
  };

  #schema(value: unknown, path: string): Expression {
    const schema = schemaAt(value, path);
    this.#grammar.countSchema(path);
    if (schema === true) return this.#grammar.value;
    if (schema === false) return nothing;
    if (++this.#depth > depthMax) throw new SchemaError(path, `more than ${depthMax} nested schemas`, true);
    checkKeywords(schema, path);
    const expression = this.#composed(schema, path);
    this.#depth--;
    return expression;
  }

  #composed(schema: SchemaObject, path: string): Expression {
    const { $ref, allOf: _, anyOf, oneOf, ...rest } = schema;
    if ($ref !== undefined) {
      const target = this.#resolve($ref, path);
      if (hasOnlyAnnotations(schema, '$ref')) return this.#reference(target.path, target.schema);
      const { $ref: __, ...siblings } = schema;
      const all = mergeParts(siblings, (rest) => merge(target.schema, rest, path, this.#resolve));
      return this.#schema(all, path);
    }
    const parts = listOf(schema, 'allOf', path);
    if (parts !== undefined) {
      const others: SchemaObject = Object.fromEntries(Object.entries(schema).filter(([key]) => key !== 'allOf'));
      const all = mergeParts(others, (rest) =>
        parts.reduce<Schema>(
          (sum, part, i) => merge(sum, schemaAt(part, pointer(pointer(path, 'allOf'), i)), path, this.#resolve),
          rest,
        ),
      );
      return this.#schema(all, path);
    }
    if (anyOf !== undefined)
      return this.#options('anyOf', oneOf === undefined ? rest : { ...rest, oneOf }, schema, path);
    if (oneOf !== undefined) {
      this.#checkDisjoint(schema, path);
      return this.#options('oneOf', rest, schema, path);
    }
    return this.#plain(rest, path);
  }

  #options(keyword: 'anyOf' | 'oneOf', rest: SchemaObject, schema: SchemaObject, path: string): Expression {
    const list = listOf(schema, keyword, path)!;
    const isAlone = hasOnlyAnnotations(rest, keyword);
    const options = list.map((option, i) => {
      const place = pointer(pointer(path, keyword), i);
      if (isAlone) return this.#schema(option, place);
      const all = mergeParts(rest, (others) => merge(others, schemaAt(option, place), place, this.#resolve));
      return this.#schema(all, place);
    });
    return choice(...options);
  }

  #checkDisjoint(schema: SchemaObject, path: string): void {
    const list = listOf(schema, 'oneOf', path)!.map((option) => schemaAt(option, pointer(path, 'oneOf')));
    if (list.length > 100) throw new SchemaError(pointer(path, 'oneOf'), 'more than 100 options', true);
    const areAllDisjoint = list.every((a, i) =>
      list.slice(i + 1).every((b) => areDisjoint(a, b, pointer(path, 'oneOf'), this.#resolve)),
    );
    if (areAllDisjoint) return;
    throw new SchemaError(pointer(path, 'oneOf'), 'two options of `oneOf` may match the same value; use `anyOf`');
  }

  #plain(schema: SchemaObject, path: string): Expression {
    const constants = schema.const === undefined ? schema.enum : [schema.const];
    if (constants !== undefined) return this.#constants(constants, schema, path);
    return choice(...typesOf(schema, path).map((type) => this.#ofType(type, schema, path)));
  }

  #constants(values: unknown, schema: SchemaObject, path: string): Expression {
    if (!Array.isArray(values)) throw new SchemaError(pointer(path, 'enum'), 'expected a list');
    const types = schema.type === undefined ? undefined : typesOf(schema, path);
    const fitting = values.filter((value: unknown) => {
      const type = typeOfValue(value);
      const hasType = types === undefined || types.includes(type) || (type === 'integer' && types.includes('number'));
      return hasType && satisfies(value, schema, path);
    });
    if (fitting.length === 0) throw new SchemaError(pointer(path, 'enum'), 'no value is allowed');
    return choice(...[...new Set(fitting.map((value) => JSON.stringify(value)))].map(text));
  }

  #ofType(type: TypeName, schema: SchemaObject, path: string): Expression {
    if (type === 'object') return this.#object(schema, path);
    if (type === 'array') return this.#array(schema, path);
    if (type === 'string') return this.#string(schema, path);
    if (type === 'null') return text('null');
    if (type === 'boolean') return choice(text('true'), text('false'));
    return this.#number(type, schema, path);
  }

  #number(type: 'number' | 'integer', schema: SchemaObject, path: string): Expression {
    const bounds = numberBoundsOf(schema, path);
    if (bounds === undefined) return type === 'integer' ? anyInteger : rule('number');
    return type === 'integer' ? integerBetween(bounds) : numberBetween(bounds);
  }

  #string(schema: SchemaObject, path: string): Expression {
    const { min, max } = countsOf(schema, 'minLength', 'maxLength', path);
    const { pattern, format } = schema;
    const formatted = typeof format === 'string' ? stringOfFormat(format) : undefined;
    const lengths = ['minLength', 'maxLength'].filter((keyword) => schema[keyword] !== undefined);
    const given = [
      ...(pattern === undefined ? [] : ['pattern']),
      ...(formatted === undefined ? [] : ['format']),
      ...(min > 0 || max < Infinity ? lengths : []),
    ];
    const isLengthOnly = pattern === undefined && formatted === undefined;
    if (!isLengthOnly && given.length > 1) {
      throw new SchemaError(pointer(path, given[1]!), `\`${given[0]}\` together with \`${given[1]}\` is not supported`);
    }
    if (formatted !== undefined) return formatted;
    if (pattern !== undefined) return this.#pattern(pattern, pointer(path, 'pattern'));
    return min === 0 && max === Infinity ? rule('string') : stringOfLength(min, max);
  }

  #pattern(pattern: unknown, path: string): Expression {
    if (typeof pattern !== 'string') throw new SchemaError(path, 'expected a text');
    try {
      return stringWithPattern(pattern);
    } catch (error) {
      if (error instanceof RegexError)
        throw new SchemaError(path, `the pattern has ${error.message}, which is not supported,`);
      throw error;
    }
  }

  #array(schema: SchemaObject, path: string): Expression {
    const tuple = Array.isArray(schema.items) ? schema.items : schema.prefixItems;
    const rest = Array.isArray(schema.items) ? schema.additionalItems : schema.items;
    const prefix = tuple === undefined ? [] : tuple;
    if (!Array.isArray(prefix)) throw new SchemaError(pointer(path, 'prefixItems'), 'expected a list');
    const { min, max } = countsOf(schema, 'minItems', 'maxItems', path);
    const most = rest === false ? Math.min(max, prefix.length) : max;
    if (most < min) {
      const problem = `\`minItems\` of ${min} contradicts \`items\`, which allows ${most} item(s)`;
      throw new SchemaError(path, problem);
    }
    const isRestUsed = most > prefix.length && (rest !== undefined || prefix.length === 0 || min > prefix.length);
    const item = isRestUsed ? this.#schema(rest ?? true, pointer(path, 'items')) : nothing;
    const firsts = prefix
      .slice(0, Math.min(most, prefix.length))
      .map((part: unknown, i: number) => this.#schema(part, pointer(pointer(path, 'prefixItems'), i)));
    const { comma } = this.#grammar;
    let inside: Expression =
      isRestUsed && firsts.length > 0
        ? repeat(sequence(comma, item), Math.max(0, min - firsts.length), most - firsts.length)
        : empty;
    for (let i = firsts.length - 1; i >= 0; i--) {
      const part = sequence(...(i === 0 ? [] : [comma]), firsts[i]!, inside);
      inside = i >= min && i > 0 ? optional(part) : part;
    }
    if (firsts.length === 0) inside = isRestUsed ? this.#grammar.list(item, Math.max(min, 1), most) : nothing;
    const filled = this.#grammar.enclosed('[', inside, ']');
    return min > 0 ? filled : choice(this.#grammar.enclosed('[', undefined, ']'), filled);
  }

  #object(schema: SchemaObject, path: string): Expression {
    const properties = objectOf(schema, 'properties', path);
    const required = requiredNames(schema, path);
    const names = [...new Set([...Object.keys(properties), ...required])];
    const extra = this.#extraMember(schema, names, path);
    const { min, max } = this.#memberCounts(schema, { names: names.length, required: required.size, extra }, path);
    if (names.length === 0) {
      if (extra === undefined || max === 0) return this.#grammar.enclosed('{', undefined, '}');
      const filled = this.#grammar.enclosed('{', this.#grammar.list(extra, Math.max(1, min), max), '}');
      return min > 0 ? filled : choice(this.#grammar.enclosed('{', undefined, '}'), filled);
    }
    const members = names.map((name) => {
      const isDeclared = Object.hasOwn(properties, name);
      const place = pointer(isDeclared ? pointer(path, 'properties') : path, name);
      const value = isDeclared
        ? properties[name]
        : (schema.additionalProperties ?? schema.unevaluatedProperties ?? true);
      return {
        expression: this.#grammar.member(text(JSON.stringify(name)), this.#schema(value, place)),
        isRequired: required.has(name),
      };
    });
    return this.#members(members, extra);
  }

  /** Members come in the order of `properties`; then come the others. */
  #members(
    members: readonly { expression: Expression; isRequired: boolean }[],
    extra: Expression | undefined,
  ): Expression {
    const { comma } = this.#grammar;
    let tail: Expression = extra === undefined ? empty : repeat(sequence(comma, extra), 0, Infinity);
    let head: Expression = extra === undefined ? nothing : sequence(extra, tail);
    for (let i = members.length - 1; i >= 0; i--) {
      const { expression, isRequired } = members[i]!;
      const begin = sequence(expression, tail);
      head = isRequired ? begin : choice(begin, head);
      const more = sequence(comma, expression);
      // A rule, because both the tail and the head have it.
      tail = this.#grammar.newRule(sequence(isRequired ? more : optional(more), tail));
    }
    const filled = this.#grammar.enclosed('{', head, '}');
    const hasRequired = members.some(({ isRequired }) => isRequired);
    return hasRequired ? filled : choice(this.#grammar.enclosed('{', undefined, '}'), filled);
  }

  /** A member that `properties` does not name; undefined if there may be none. */
  #extraMember(schema: SchemaObject, names: readonly string[], path: string): Expression | undefined {
    const patterns = Object.entries(objectOf(schema, 'patternProperties', path));
    const isClosed = schema.properties !== undefined || schema.unevaluatedProperties === false;
    const isPlain = names.length === 0 && !isClosed && patterns.length === 0;
    const additional = schemaAt(schema.additionalProperties ?? isPlain, pointer(path, 'additionalProperties'));
    const keys = schema.propertyNames;
    if (keys !== undefined && (names.length > 0 || patterns.length > 0)) {
      throw new SchemaError(
        pointer(path, 'propertyNames'),
        '`propertyNames` together with other properties is not supported',
      );
    }
    if (patterns.length > 0) return this.#patternMember(patterns, additional, names, path);
    if (additional === false) return undefined;
    const value = this.#schema(additional, pointer(path, 'additionalProperties'));
    return this.#grammar.member(keys === undefined ? this.#otherKey(names) : this.#keyOf(keys, path), value);
  }

  #otherKey = (names: readonly string[]): Expression => (names.length === 0 ? rule('string') : keyExcept(names));

  #keyOf(keys: unknown, path: string): Expression {
    const place = pointer(path, 'propertyNames');
    const schema = schemaAt(keys, place);
    return this.#schema(
      isSchemaObject(schema) ? merge(schema, { type: 'string' }, place, this.#resolve) : schema,
      place,
    );
  }

  #patternMember(
    patterns: readonly [string, unknown][],
    additional: Schema,
    names: readonly string[],
    path: string,
  ): Expression {
    const place = pointer(path, 'patternProperties');
    const [pattern, value] = patterns[0]!;
    if (patterns.length > 1 || additional !== false) {
      const problem = 'only one pattern, without `additionalProperties`, is supported';
      throw new SchemaError(place, problem);
    }
    const key = this.#pattern(pattern, pointer(place, pattern));
    if (names.some((name) => new RegExp(pattern, 'u').test(name))) {
      throw new SchemaError(place, 'a pattern that matches a name of `properties` is not supported');
    }
    return this.#grammar.member(key, this.#schema(value, pointer(place, pattern)));
  }

  #memberCounts(
    schema: SchemaObject,
    members: { readonly names: number; readonly required: number; readonly extra: Expression | undefined },
    path: string,
  ): Counts {
    const { min, max } = countsOf(schema, 'minProperties', 'maxProperties', path);
    const { names, required, extra } = members;
    // A model can write a key twice, which counts once.
    const isMinKept = min <= required || (names === 0 && extra !== undefined && min <= 1);
    if (!isMinKept)
      throw new SchemaError(pointer(path, 'minProperties'), `\`minProperties\` of ${min} is not supported`);
    const isMaxKept = max === Infinity || names === 0 || (extra === undefined && max >= names);
    if (!isMaxKept)
      throw new SchemaError(pointer(path, 'maxProperties'), '`maxProperties` with `properties` is not supported');
    return { min, max };
  }
}

function requiredNames(schema: SchemaObject, path: string): ReadonlySet<string> {
  const { required = [] } = schema;
  if (Array.isArray(required) && required.every((name) => typeof name === 'string'))
    return new Set(required as string[]);
  throw new SchemaError(pointer(path, 'required'), 'expected a list of names');
}

function decoded(part: string): string {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}
