import { writeExactJson } from '../base/exact-json.ts';
import type { JsonObject } from '../base/json.ts';
import { choiceOf, type Expression, nothing, sequence, text, until } from '../grammar/expression.ts';
import type { SchemaCompiler } from '../grammar/json-schema.ts';
import type { Conjunct, Plain } from '../grammar/schema-atoms.ts';
import { isLimited, SchemaError, type TypeName } from '../grammar/schema-keywords.ts';
import { rulesOf } from '../grammar/schema-string.ts';
import type { ParameterTags } from './parameter-grammar.ts';
import type { TagSyntax } from './value-end.ts';
import { asJson, typesOfParameter, type ValueType } from './written-values.ts';

/** Ways to match the schema of a parameter. */
const waysMax = 100;

type Types = ReadonlySet<ValueType>;

const anyNumber =
  '^\\s*[+-]?(?:0[xX][0-9a-fA-F_]+|0[oO][0-7_]+|0[bB][01_]+|(?:[0-9][0-9_]*\\.?[0-9]*|\\.[0-9]+)(?:[eE][+-]?[0-9]+)?)\\s*$';

/**
 * The texts that `asJson` may read as a value of the type. More texts are no fault: as texts they are not allowed, where
 * values of the type have limits.
 */
const readAs: Readonly<Record<Exclude<ValueType, 'string'>, string>> = {
  null: '^\\s*(?:null|None)\\s*$',
  boolean: '^\\s*(?:[Tt]rue|[Ff]alse)\\s*$',
  number: anyNumber,
  integer: anyNumber,
  array: '^\\s*[\\[(]',
  object: '^\\s*\\{',
};

/** A way to match the schema of a parameter. */
interface Way {
  readonly plain: readonly Plain[];
  readonly types: readonly TypeName[];
  readonly constants: readonly unknown[] | undefined;
}

/**
 * Values in tags. Texts have no quotes, and the reader takes what is JSON of another type of the parameter for that. So what it makes
 * of each written value matches the schema.
 */
export class TaggedValues {
  readonly #schema: JsonObject;
  readonly #compiler: SchemaCompiler;
  readonly #tags: ParameterTags;
  readonly #isStrict: boolean;

  /** `schema`: of all parameters. */
  constructor(schema: JsonObject, compiler: SchemaCompiler, tags: ParameterTags, isStrict: boolean) {
    this.#schema = schema;
    this.#compiler = compiler;
    this.#tags = tags;
    this.#isStrict = isStrict;
  }

  /** A value that matches all of these, and its closing tag. */
  value(name: string, conjuncts: readonly Conjunct[]): Expression {
    const { before, tag, after } = this.#tags.close;
    const close = text(before + tag + after);
    const types = typesOfParameter(this.#schema, name);
    if (!types.has('string')) return sequence(this.#compiler.valueOf(conjuncts), close);
    const ways = this.#waysOf(conjuncts);
    const isAnyText = ways === undefined || ways.some(({ plain, types: own }) => isFree('string', plain, own));
    const limited = ways === undefined ? [] : this.#limitedTypes(ways, types);
    if (isAnyText && limited.length === 0 && !this.#isStrict) return sequence(until(tag), text(after));
    const excluded = [endOf(this.#tags.syntax), ...limited.map((type) => readAs[type])];
    if (isAnyText && limited.length === 0) return sequence(this.#anyText(excluded), close);
    const options = (ways ?? []).flatMap((way) => this.#optionsOf(way, types, excluded));
    const written = options.filter((option) => option !== nothing);
    if (written.length === 0) {
      throw new SchemaError(conjuncts[0]?.path ?? '#', 'no value can be written without quotes');
    }
    return sequence(choiceOf(written), close);
  }

  /** Undefined: any value is allowed. */
  #waysOf(conjuncts: readonly Conjunct[]): readonly Way[] | undefined {
    const ways = this.#compiler.alternativesOf(conjuncts, waysMax);
    if (ways === undefined) {
      const problem = 'so many combinations of schemas are not supported in this format of calls';
      this.#compiler.atoms.report(conjuncts[0]?.path ?? '#', problem);
    }
    if (ways === undefined || ways.some((plain) => plain.length === 0)) return undefined;
    return ways.map((plain) => {
      const constants = this.#compiler.constantsOf(plain);
      return { plain, constants, types: constants === undefined ? this.#compiler.typesOf(plain) : [] };
    });
  }

  /** The types of which only some values are allowed: a text that is read as another value of them would be wrong. */
  #limitedTypes(ways: readonly Way[], types: Types): readonly Exclude<ValueType, 'string'>[] {
    const { values } = this.#compiler;
    const accepts = (value: unknown): boolean => ways.some(({ plain }) => values.accepts(value, plain));
    const isAny = (type: TypeName): boolean => ways.some(({ plain, types: own }) => isFree(type, plain, own));
    const isAll: Readonly<Record<Exclude<ValueType, 'string'>, () => boolean>> = {
      null: () => accepts(null),
      boolean: () => accepts(true) && accepts(false),
      number: () => isAny('number'),
      integer: () => isAny('number') || isAny('integer'),
      array: () => isAny('array'),
      object: () => isAny('object'),
    };
    return (Object.keys(isAll) as Exclude<ValueType, 'string'>[]).filter((type) => types.has(type) && !isAll[type]());
  }

  #optionsOf({ plain, constants, types: own }: Way, types: Types, excluded: readonly string[]): readonly Expression[] {
    if (constants !== undefined) return constants.map((value) => this.#constant(value, types));
    const others = own.filter((type) => type !== 'string');
    const json = others.length === 0 ? [] : [this.#compiler.ofTypes(others, plain)];
    if (!own.includes('string')) return json;
    const rules = rulesOf(plain);
    const { constraints, lengths, excluded: texts } = rules;
    // Counts make states, and only texts without `<` end in one that counts nothing else.
    const isCounted = lengths.min > 0 || lengths.max < Infinity;
    const [end, ...read] = excluded;
    const not = [isCounted ? '<' : end!, ...read];
    const isAny = constraints.length + texts.length === 0 && !isCounted;
    const string = isAny ? this.#anyText(not) : this.#compiler.strings.plainText(rules, not, read.length === 0);
    return [...json, string];
  }

  #anyText(excluded: readonly string[]): Expression {
    const rules = { constraints: [], lengths: { min: 0, max: Infinity }, excluded: [] };
    return this.#compiler.grammar.share(`text:${excluded.join()}`, () =>
      this.#compiler.strings.plainText(rules, excluded, false),
    );
  }

  /** A constant that is read as it is written. */
  #constant(value: unknown, types: Types): Expression {
    const json = writeExactJson(value);
    const written = typeof value === 'string' ? value : json;
    if (written.includes(this.#tags.close.tag) || asJson(written, types) !== json) return nothing;
    return typeof value === 'string' ? text(value) : this.#compiler.grammar.constant(value);
  }
}

/** Whether all values of the type match. */
const isFree = (type: TypeName, plain: readonly Plain[], types: readonly TypeName[]): boolean =>
  types.includes(type) && plain.every(({ schema, facts }) => facts === undefined && !isLimited(schema, type));

/** What ends a text for the reader of calls, which also takes calls whose tags the model left out. */
function endOf({ ends, hasLineBreaks, parameterOpen, valueClose }: TagSyntax): string {
  const next = `${hasLineBreaks ? '(?:^|\\n)' : ''}${literal(parameterOpen)}`;
  const ofCall = ends.map(({ tag, before }) => `${literal(tag)}\\s*(?:${before.map(literal).join('|')})`);
  return [literal(valueClose), next, ...ofCall].join('|');
}

const literal = (value: string): string => value.replace(/[\\^$.*+?()[\]{}|/]/g, '\\$&');
