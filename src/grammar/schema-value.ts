import { compareDecimals, decimalOf, isMultipleOf, isNumber, textOfNumber } from './decimal.ts';
import { patternOfFormat } from './formats.ts';
import type { Branch, Conjunct, Plain, SchemaAtoms } from './schema-atoms.ts';
import { numberBoundsOf } from './schema-bounds.ts';
import {
  countOf,
  declaredTypes,
  isSchemaObject,
  keyOfValue,
  namesIn,
  numberOf,
  objectOf,
  type SchemaObject,
  typeOfValue,
} from './schema-keywords.ts';

/** Whether a text has a match of a pattern; undefined: not known. */
export type MatchesPattern = (pattern: string, text: string) => boolean | undefined;

/** Undefined: not known. */
type Answer = boolean | undefined;

const depthMax = 64;

/** Decides whether values of `enum` and `const`, and names, match other schemas. */
export class ValueChecker {
  readonly #atoms: SchemaAtoms;
  readonly #matches: MatchesPattern;
  readonly #spend: () => void;
  readonly #keys = new WeakMap<readonly unknown[], ReadonlySet<string>>();
  #depth = 0;

  constructor(atoms: SchemaAtoms, matches: MatchesPattern, spend: () => void) {
    this.#atoms = atoms;
    this.#matches = matches;
    this.#spend = spend;
  }

  /** True only if the value matches all requirements. */
  accepts(value: unknown, conjuncts: readonly Conjunct[]): boolean {
    return this.#isValid(value, conjuncts) === true;
  }

  #isValid(value: unknown, conjuncts: readonly Conjunct[]): Answer {
    if (this.#depth >= depthMax) return undefined;
    this.#spend();
    const found = this.#atoms.resolve(conjuncts);
    if (found === undefined) return false;
    this.#depth++;
    const answer = both(
      every(found.plain, (plain) => this.#matchesPlain(value, plain)),
      every(found.branches, (branch) => this.#matchesBranch(value, branch)),
    );
    this.#depth--;
    return answer;
  }

  #matchesBranch(value: unknown, { options }: Branch): Answer {
    return not(every(options, (option) => not(this.#isValid(value, option))));
  }

  #matchesPlain(value: unknown, plain: Plain): Answer {
    const { schema, path, facts } = plain;
    const type = typeOfValue(value);
    const types = declaredTypes(schema, path);
    if (types !== undefined && !types.includes(type) && !(type === 'integer' && types.includes('number'))) return false;
    if (schema.const !== undefined && keyOfValue(value) !== keyOfValue(schema.const)) return false;
    if (Array.isArray(schema.enum) && !this.#keysOf(schema.enum).has(keyOfValue(value))) return false;
    if (facts?.notValues !== undefined && this.#keysOf(facts.notValues).has(keyOfValue(value))) return false;
    if (typeof value === 'string') return this.#matchesText(value, plain);
    if (isNumber(value)) return matchesNumber(textOfNumber(value), plain);
    if (Array.isArray(value)) return this.#matchesList(value, plain);
    return isSchemaObject(value) ? this.#matchesObject(value, plain) : true;
  }

  #keysOf(values: readonly unknown[]): ReadonlySet<string> {
    let keys = this.#keys.get(values);
    if (keys === undefined) {
      keys = new Set(values.map(keyOfValue));
      this.#keys.set(values, keys);
    }
    return keys;
  }

  #matchesText(value: string, { schema, path, facts }: Plain): Answer {
    const { pattern, format } = schema;
    const length = [...value].length;
    if (length < countOf(schema, 'minLength', path, 0) || length > countOf(schema, 'maxLength', path, Infinity))
      return false;
    const formatted = typeof format === 'string' ? patternOfFormat(format) : undefined;
    return every<() => Answer>(
      [
        () => (typeof pattern === 'string' ? this.#matches(pattern, value) : true),
        // The pattern of a format has only a part of the format's texts.
        () => formatted === undefined || this.#matches(formatted, value) || undefined,
        () => facts?.notPattern === undefined || not(this.#matches(facts.notPattern, value)),
      ],
      (part) => part(),
    );
  }

  #matchesList(value: readonly unknown[], { schema, path, facts }: Plain): Answer {
    if (
      value.length < countOf(schema, 'minItems', path, 0) ||
      value.length > countOf(schema, 'maxItems', path, Infinity)
    )
      return false;
    if (schema.uniqueItems === true && new Set(value.map(keyOfValue)).size < value.length) return false;
    if (schema.contains !== undefined || schema.unevaluatedItems !== undefined) return undefined;
    const isTuple = Array.isArray(schema.items);
    const prefix: unknown = isTuple ? schema.items : schema.prefixItems;
    const firsts: readonly unknown[] = Array.isArray(prefix) ? prefix : [];
    const rest = isTuple ? schema.additionalItems : schema.items;
    const ofItem = (item: unknown, i: number): Answer => {
      const inner = i < firsts.length ? firsts[i] : rest;
      const element = facts?.element;
      return both(
        inner === undefined ? true : this.#isValid(item, [this.#atoms.link(inner, path)]),
        both(
          facts?.each === undefined ? true : this.#isValid(item, [facts.each]),
          element?.index === i ? this.#isValid(item, [element.value]) : true,
        ),
      );
    };
    const some = facts?.some;
    return both(
      every([...value.keys()], (i) => ofItem(value[i], i)),
      some === undefined ? true : not(every(value, (item) => not(this.#isValid(item, [some])))),
    );
  }

  #matchesObject(value: SchemaObject, { schema, path, facts }: Plain): Answer {
    const names = Object.keys(value);
    if (namesIn(schema, 'required', path).some((name) => !Object.hasOwn(value, name))) return false;
    if (facts?.absent?.some((name) => Object.hasOwn(value, name)) === true) return false;
    const [min, max] = [countOf(schema, 'minProperties', path, 0), countOf(schema, 'maxProperties', path, Infinity)];
    if (names.length < min || names.length > max) return false;
    if (schema.unevaluatedProperties !== undefined && schema.unevaluatedProperties !== true) return undefined;
    return every(names, (name) => this.#matchesMember(name, value[name], { schema, path, facts }));
  }

  #matchesMember(
    name: string,
    value: unknown,
    { schema, path, facts }: Pick<Plain, 'schema' | 'path' | 'facts'>,
  ): Answer {
    const properties = objectOf(schema, 'properties', path);
    const patterns = Object.entries(objectOf(schema, 'patternProperties', path));
    const matching = patterns.map(([pattern, inner]) => [this.#matches(pattern, name), inner] as const);
    if (matching.some(([isMatch]) => isMatch === undefined)) return undefined;
    const inner = matching.filter(([isMatch]) => isMatch === true).map(([, schemaOfPattern]) => schemaOfPattern);
    if (Object.hasOwn(properties, name)) inner.push(properties[name]);
    if (inner.length === 0 && schema.additionalProperties !== undefined) inner.push(schema.additionalProperties);
    const links: Conjunct[] = inner.map((item) => this.#atoms.link(item, path));
    if (facts?.member?.name === name) links.push(facts.member.value);
    const names = schema.propertyNames;
    return both(
      this.#isValid(value, links),
      names === undefined ? true : this.#isValid(name, [this.#atoms.link(names, path)]),
    );
  }
}

function matchesNumber(text: string, { schema, path, facts }: Plain): boolean {
  const value = decimalOf(text);
  const { min, max } = numberBoundsOf(schema, path);
  if (min !== undefined && compareDecimals(value, min) < 0) return false;
  if (max !== undefined && compareDecimals(value, max) > 0) return false;
  const divisor = numberOf(schema, 'multipleOf', path);
  if (divisor !== undefined && !isMultipleOf(value, decimalOf(divisor))) return false;
  return facts?.notMultipleOf === undefined || !isMultipleOf(value, decimalOf(facts.notMultipleOf));
}

const not = (answer: Answer): Answer => (answer === undefined ? undefined : !answer);

const both = (a: Answer, b: Answer): Answer =>
  a === false || b === false ? false : a === true && b === true ? true : undefined;

function every<T>(items: readonly T[], question: (item: T) => Answer): Answer {
  let answer: Answer = true;
  for (const item of items) {
    answer = both(answer, question(item));
    if (answer === false) return false;
  }
  return answer;
}
