import type { JsonObject } from '../base/json.ts';
import {
  characters,
  choice,
  choiceOf,
  type Expression,
  empty,
  optional,
  repeat,
  sequence,
  text,
  until,
} from '../grammar/expression.ts';
import type { JsonGrammar } from '../grammar/json-grammar.ts';
import { membersOfParts, type NamedMember } from '../grammar/json-object.ts';
import type { SchemaCompiler } from '../grammar/json-schema.ts';
import type { Conjunct, Plain } from '../grammar/schema-atoms.ts';
import { isLimited, pointer, SchemaError } from '../grammar/schema-keywords.ts';
import { argumentTagSyntax, functionTagSyntax } from './function-tags.ts';
import { quote } from './gemma-values.ts';
import { TaggedValues } from './tagged-values.ts';
import type { TagSyntax } from './value-end.ts';

/** The grammars of arguments that are not one JSON object: each parameter is written with its name. */
interface Parameters {
  readonly compiler: SchemaCompiler;
  readonly list: readonly NamedMember[];
  /** What parameters without a declared name match; undefined: there are none. */
  readonly others: readonly Conjunct[] | undefined;
}

/** Keywords that say something of all parameters together. No grammar here keeps to them. */
const ofAllParameters = ['minProperties', 'maxProperties', 'patternProperties', 'propertyNames'];
/** Ways to match a schema that combines others. */
const waysMax = 64;

/** The arguments in each way to match the schema. */
function argumentsOf(
  root: JsonObject,
  json: JsonGrammar,
  isStrict: boolean,
  write: (parameters: Parameters) => Expression,
): Expression {
  const compiler = json.compiler(root, isStrict);
  const { atoms } = compiler;
  const whole = [atoms.link(root, '#'), atoms.plain({ type: 'object' }, '#')];
  const ways = compiler.alternativesOf(whole, waysMax) ?? withoutBranches(whole, compiler);
  const options = ways.flatMap((plain) => {
    reportUnkept(plain, compiler);
    const members = membersOfParts(plain, compiler);
    return members === undefined ? [] : [write({ compiler, list: members.named, others: members.others })];
  });
  compiler.buildRules();
  if (options.length === 0) throw new SchemaError('#', 'no arguments are allowed');
  return choiceOf(options);
}

function withoutBranches(conjuncts: readonly Conjunct[], { atoms }: SchemaCompiler): readonly (readonly Plain[])[] {
  atoms.report('#', 'so many combinations of schemas are not supported in this format of calls');
  const found = atoms.resolve(conjuncts);
  return found === undefined ? [] : [found.plain];
}

function reportUnkept(plain: readonly Plain[], { atoms }: SchemaCompiler): void {
  for (const { schema, path } of plain) {
    for (const keyword of ofAllParameters) {
      if (schema[keyword] === undefined) continue;
      atoms.report(pointer(path, keyword), `the keyword \`${keyword}\` is not supported in this format of calls`);
    }
  }
}

/** The texts around a parameter's name and value. */
export interface ParameterTags {
  readonly open: string;
  /** Between the name and the value. */
  readonly between: string;
  /** After the value: the closing tag, which begins with a line break in some formats, and the rest. */
  readonly close: { readonly before: string; readonly tag: string; readonly after: string };
  /** What no name can have. */
  readonly notInName: RegExp;
  /** How such calls are read. */
  readonly syntax: TagSyntax;
}

/** `<parameter=name>`, a line break, the value, a line break and `</parameter>`. */
export const parameterTags: ParameterTags = {
  open: '<parameter=',
  between: '>\n',
  close: { before: '\n', tag: '</parameter>', after: '\n' },
  notInName: /[>\n]/,
  syntax: functionTagSyntax,
};
/** `<arg_key>name</arg_key><arg_value>value</arg_value>`. */
export const argumentTags: ParameterTags = {
  open: '<arg_key>',
  between: '</arg_key><arg_value>',
  close: { before: '', tag: '</arg_value>', after: '' },
  notInName: /[<\n]/,
  syntax: argumentTagSyntax,
};

/** Each parameter with its name and its value in tags. */
export function taggedArguments(
  schema: JsonObject,
  json: JsonGrammar,
  isStrict: boolean,
  tags: ParameterTags = parameterTags,
): Expression {
  return argumentsOf(schema, json, isStrict, ({ compiler, list, others }) => {
    const values = new TaggedValues(schema, compiler, tags, isStrict);
    const parts = list.map(({ name, conjuncts, isRequired }) => {
      if (name === '' || tags.notInName.test(name) || name.trim() !== name)
        throw new SchemaError(pointer('#/properties', name), 'no tag can have this name');
      const tag = sequence(text(tags.open + name + tags.between), values.value(name, conjuncts));
      return isRequired ? tag : optional(tag);
    });
    if (others === undefined) return sequence(...parts);
    const anyName = repeat(characters('az', 'AZ', '09', '_', '-', '.'), 1, 64);
    const tag = sequence(text(tags.open), anyName, text(tags.between), values.value('*', others));
    return repeat(tag, 0, Infinity);
  });
}

/** How a format writes parameters with their names. */
interface NamedStyle {
  readonly language: string;
  readonly equals: string;
  readonly comma: string;
  readonly name: RegExp;
  value(conjuncts: readonly Conjunct[], compiler: SchemaCompiler): Expression;
}

const pythonStyle: NamedStyle = {
  ...{ language: 'Python', equals: '=', comma: ', ' },
  name: /^[^\s=(),[\]{}'"]+$/,
  value: (conjuncts, compiler) => compiler.valueOf(conjuncts),
};
const gemmaStyle: NamedStyle = {
  ...{ language: 'Gemma', equals: ':', comma: ',' },
  name: /^[^\s:,[\]{}<>"]+$/,
  value: gemmaValue,
};

/** `name=value, name=value`: required parameters first. Values are JSON, which the reader of calls takes as it takes Python. */
export const namedArguments = (schema: JsonObject, json: JsonGrammar, isStrict: boolean): Expression =>
  argumentsOf(schema, json, isStrict, (parameters) => membersOf(parameters, pythonStyle));

/** `name:value,name:value`: required parameters first. Any text is between `<|"|>`; other values are JSON, which the reader of calls takes. */
export const gemmaArguments = (schema: JsonObject, json: JsonGrammar, isStrict: boolean): Expression =>
  argumentsOf(schema, json, isStrict, (parameters) => membersOf(parameters, gemmaStyle));

/** A text with a limit is JSON, because its limit could allow the mark that ends a text. */
function gemmaValue(conjuncts: readonly Conjunct[], compiler: SchemaCompiler): Expression {
  const { plain = [], branches = [] } = compiler.atoms.resolve(conjuncts) ?? {};
  const isText = plain.every(
    ({ schema, facts }) => schema.type === 'string' && facts === undefined && !isLimited(schema),
  );
  if (!isText || plain.length === 0 || branches.length > 0) return compiler.valueOf(conjuncts);
  return sequence(text(quote), until(quote));
}

function membersOf({ compiler, list, others }: Parameters, style: NamedStyle): Expression {
  const comma = text(style.comma);
  const member = ({ name, conjuncts }: NamedMember): Expression => {
    if (!style.name.test(name))
      throw new SchemaError(pointer('#/properties', name), `no argument of ${style.language} can have this name`);
    return sequence(text(`${name}${style.equals}`), style.value(conjuncts, compiler));
  };
  if (others !== undefined) {
    const anyName = sequence(characters('az', 'AZ', '_'), repeat(characters('az', 'AZ', '09', '_'), 0, 63));
    const any = sequence(anyName, text(style.equals), style.value(others, compiler));
    return optional(sequence(any, repeat(sequence(comma, any), 0, Infinity)));
  }
  const required = list.filter(({ isRequired }) => isRequired).map(member);
  const optionals = list.filter(({ isRequired }) => !isRequired).map(member);
  const more = optionals.map((other) => optional(sequence(comma, other)));
  if (required.length > 0) {
    return sequence(...required.flatMap((one, i) => (i === 0 ? [one] : [comma, one])), ...more);
  }
  return choice(empty, ...optionals.map((other, i) => sequence(other, ...more.slice(i + 1))));
}
