import { namesOf, writeExactJson } from '../base/exact-json.ts';
import { isJsonObject, type JsonObject } from '../base/json.ts';
import {
  characters,
  choice,
  type Expression,
  empty,
  optional,
  repeat,
  sequence,
  text,
  until,
} from '../grammar/expression.ts';
import type { JsonGrammar } from '../grammar/json-grammar.ts';
import { plainTextOf } from '../grammar/plain-text.ts';
import { pointer, SchemaError } from '../grammar/schema-keywords.ts';
import { quote } from './gemma-values.ts';
import { asJson, isOnlyText, referencesOf, typesOfSchema } from './written-values.ts';

/** The grammars of arguments that are not one JSON object: each parameter is written with its name. */
interface Parameter {
  readonly name: string;
  readonly schema: unknown;
  readonly isRequired: boolean;
}

/** Keywords that say something of all parameters together. No grammar here keeps to them. */
const ofAllParameters = [
  ...['anyOf', 'oneOf', 'allOf', 'not', 'if', 'dependentRequired', 'dependentSchemas', 'dependencies'],
  ...['minProperties', 'maxProperties', 'patternProperties', 'propertyNames'],
];

interface Parameters {
  /** The root of references. */
  readonly root: JsonObject;
  readonly list: readonly Parameter[];
  /** The schema of parameters without a name; undefined: there are none. */
  readonly others: unknown;
  readonly isStrict: boolean;
}

function parametersOf(root: JsonObject, isStrict: boolean): Parameters {
  const target = typeof root.$ref === 'string' ? referencesOf(root).target(root.$ref, root)?.schema : undefined;
  const schema = isJsonObject(target) ? target : root;
  for (const keyword of ofAllParameters) {
    const value = schema[keyword];
    if (value === undefined || (Array.isArray(value) && value.length === 0)) continue;
    throw new SchemaError(pointer('#', keyword), `the keyword \`${keyword}\` is not supported in this format of calls`);
  }
  const properties = isJsonObject(schema.properties) ? schema.properties : {};
  const required = Array.isArray(schema.required) ? schema.required.filter((name) => typeof name === 'string') : [];
  const names = [...new Set([...namesOf(properties), ...required])];
  const { additionalProperties } = schema;
  const list = names.map((name) => ({
    name,
    schema: Object.hasOwn(properties, name) ? properties[name] : additionalProperties,
    isRequired: required.includes(name),
  }));
  return {
    root,
    list,
    isStrict,
    others: names.length === 0 && additionalProperties !== false ? (additionalProperties ?? true) : undefined,
  };
}

/** The JSON of a parameter. References in its schema begin at the root. */
function jsonOf({ name, schema }: Parameter, { root, isStrict }: Parameters, json: JsonGrammar): Expression {
  if (!isJsonObject(schema)) return schema === false ? json.schema(false) : json.value;
  const definitions = Object.fromEntries(
    ['$defs', 'definitions'].map((key) => [key, root[key]]).filter(([, value]) => value !== undefined),
  );
  const place = pointer('#/properties', name);
  try {
    return json.schema({ ...definitions, ...schema }, isStrict);
  } catch (error) {
    throw error instanceof SchemaError ? error.under(place) : error;
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
}

/** `<parameter=name>`, a line break, the value, a line break and `</parameter>`. */
export const parameterTags: ParameterTags = {
  open: '<parameter=',
  between: '>\n',
  close: { before: '\n', tag: '</parameter>', after: '\n' },
  notInName: /[>\n]/,
};
/** `<arg_key>name</arg_key><arg_value>value</arg_value>`. */
export const argumentTags: ParameterTags = {
  open: '<arg_key>',
  between: '</arg_key><arg_value>',
  close: { before: '', tag: '</arg_value>', after: '' },
  notInName: /[<\n]/,
};

/** Each parameter with its name and its value in tags. */
export function taggedArguments(
  schema: JsonObject,
  json: JsonGrammar,
  isStrict: boolean,
  tags: ParameterTags = parameterTags,
): Expression {
  const parameters = parametersOf(schema, isStrict);
  const parts = parameters.list.map((parameter) => {
    const { name, isRequired } = parameter;
    if (name === '' || tags.notInName.test(name) || name.trim() !== name)
      throw new SchemaError(pointer('#/properties', name), 'no tag can have this name');
    const tag = sequence(text(tags.open + name + tags.between), taggedValue(parameter, parameters, json, tags));
    return isRequired ? tag : optional(tag);
  });
  if (parameters.others === undefined) return sequence(...parts);
  const anyName = repeat(characters('az', 'AZ', '09', '_', '-', '.'), 1, 64);
  const value = taggedValue({ name: '*', schema: parameters.others, isRequired: false }, parameters, json, tags);
  return repeat(sequence(text(tags.open), anyName, text(tags.between), value), 0, Infinity);
}

function taggedValue(
  parameter: Parameter,
  parameters: Parameters,
  json: JsonGrammar,
  { close: { before, tag, after } }: ParameterTags,
): Expression {
  const close = before + tag + after;
  const types = typesOfSchema(parameter.schema, parameters.root);
  if (!types.has('string')) return sequence(jsonOf(parameter, parameters, json), text(close));
  const schema = isJsonObject(parameter.schema) ? parameter.schema : {};
  const target =
    typeof schema.$ref === 'string' ? referencesOf(parameters.root).target(schema.$ref, schema)?.schema : schema;
  const {
    const: constant,
    enum: constants = constant === undefined ? undefined : [constant],
    ...rest
  } = isJsonObject(target) ? target : {};
  const place = pointer('#/properties', parameter.name);
  if (Array.isArray(constants)) return sequence(constantTexts(constants, types, place, tag), text(close));
  const limited = isOnlyText(types) ? plainTextOf(rest, place) : undefined;
  // A value that may be a text or something else can be any text.
  return limited === undefined ? sequence(until(tag), text(after)) : sequence(limited, text(close));
}

/** Constants that are read as they are written. */
function constantTexts(
  constants: readonly unknown[],
  types: ReturnType<typeof typesOfSchema>,
  place: string,
  tag: string,
): Expression {
  const written = constants
    .map((value) => ({ raw: typeof value === 'string' ? value : writeExactJson(value), value: writeExactJson(value) }))
    .filter(({ raw, value }) => asJson(raw, types) === value && !raw.includes(tag));
  if (written.length === 0) throw new SchemaError(place, 'no value can be written without quotes');
  return choice(...[...new Set(written.map(({ raw }) => raw))].map(text));
}

/** How a format writes parameters with their names. */
interface NamedStyle {
  readonly language: string;
  readonly equals: string;
  readonly comma: string;
  readonly name: RegExp;
  value(parameter: Parameter, parameters: Parameters, json: JsonGrammar): Expression;
}

const pythonStyle: NamedStyle = {
  ...{ language: 'Python', equals: '=', comma: ', ' },
  name: /^[^\s=(),[\]{}'"]+$/,
  value: jsonOf,
};
const gemmaStyle: NamedStyle = {
  ...{ language: 'Gemma', equals: ':', comma: ',' },
  name: /^[^\s:,[\]{}<>"]+$/,
  value: gemmaValue,
};

/** `name=value, name=value`: required parameters first. Values are JSON, which the reader of calls takes as it takes Python. */
export const namedArguments = (schema: JsonObject, json: JsonGrammar, isStrict: boolean): Expression =>
  membersOf(parametersOf(schema, isStrict), json, pythonStyle);

/** `name:value,name:value`: required parameters first. Any text is between `<|"|>`; other values are JSON, which the reader of calls takes. */
export const gemmaArguments = (schema: JsonObject, json: JsonGrammar, isStrict: boolean): Expression =>
  membersOf(parametersOf(schema, isStrict), json, gemmaStyle);

/** A text with a limit is JSON, because its limit could allow the mark that ends a text. */
function gemmaValue(parameter: Parameter, parameters: Parameters, json: JsonGrammar): Expression {
  const { schema } = parameter;
  const isText = isJsonObject(schema) && namesOf(schema).every((name) => name === 'type' || name === 'description');
  if (!isText || !isOnlyText(typesOfSchema(schema, parameters.root))) return jsonOf(parameter, parameters, json);
  return sequence(text(quote), until(quote));
}

function membersOf(parameters: Parameters, json: JsonGrammar, style: NamedStyle): Expression {
  const comma = text(style.comma);
  const member = (parameter: Parameter): Expression => {
    const { name } = parameter;
    if (!style.name.test(name))
      throw new SchemaError(pointer('#/properties', name), `no argument of ${style.language} can have this name`);
    return sequence(text(`${name}${style.equals}`), style.value(parameter, parameters, json));
  };
  if (parameters.others !== undefined) {
    const anyName = sequence(characters('az', 'AZ', '_'), repeat(characters('az', 'AZ', '09', '_'), 0, 63));
    const value = style.value({ name: '*', schema: parameters.others, isRequired: false }, parameters, json);
    const any = sequence(anyName, text(style.equals), value);
    return optional(sequence(any, repeat(sequence(comma, any), 0, Infinity)));
  }
  const required = parameters.list.filter(({ isRequired }) => isRequired).map(member);
  const others = parameters.list.filter(({ isRequired }) => !isRequired).map(member);
  const more = others.map((other) => optional(sequence(comma, other)));
  if (required.length > 0) {
    return sequence(...required.flatMap((one, i) => (i === 0 ? [one] : [comma, one])), ...more);
  }
  return choice(empty, ...others.map((other, i) => sequence(other, ...more.slice(i + 1))));
}
