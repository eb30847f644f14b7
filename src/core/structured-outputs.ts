import { describeValue } from '../base/describe-value.ts';
import { writeExactJson } from '../base/exact-json.ts';
import { type FieldReader, shapes, withoutUndefined } from '../base/field-reader.ts';
import { isJsonObject } from '../base/json.ts';
import { parameterReader } from './parameter-reader.ts';

/** What the output must look like: exactly one of `json`, `regex`, `choice`, `grammar` and `jsonObject`. Names are vLLM's. */
export interface StructuredOutputs {
  /** A JSON schema, as an object or as a text. */
  readonly json?: object | boolean | string;
  /** The whole output matches it. */
  readonly regex?: string;
  /** The output is one of these texts. */
  readonly choice?: readonly string[];
  /** A grammar in GBNF (or XGrammar's EBNF) with a rule `root`. */
  readonly grammar?: string;
  /** True: the output is any JSON object. */
  readonly jsonObject?: boolean;
  /**
   * True: JSON has a space after commas and colons and no other white space. False: JSON may have spaces and new lines with
   * indentation. Absent: JSON may have a space after commas and colons.
   */
  readonly disableAnyWhitespace?: boolean;
  /** A regular expression for the white space of JSON. */
  readonly whitespacePattern?: string;
  /** Refuses schemas with keywords that cannot be kept. Default: such a keyword is left out, with a warning in the log. */
  readonly strict?: boolean;
}

/** Checked. A schema is its JSON text, because the caller could change an object later. */
export type ReadStructuredOutputs = Omit<StructuredOutputs, 'json'> & { readonly json?: string };

/** What the content of an answer must look like, and the name of the parameter that says so. */
export interface AskedStructure {
  readonly outputs: ReadStructuredOutputs;
  readonly parameter: string;
}

const kinds = ['json', 'regex', 'choice', 'grammar', 'jsonObject'] as const;

/** In UTF-16 units: compiling takes less than 50 ms. */
const textMax = 256 * 1024;
const choicesMax = 10_000;

/** @throws KvasirError `invalidParameter` */
export const readStructuredOutputs = (value: unknown, parameter = 'structuredOutputs'): ReadStructuredOutputs =>
  readStructuredFields(parameterReader(value, parameter, `${parameter}.`));

/** Reads all fields of an object. `nameOf`: the caller's name of a field. */
export function readStructuredFields(
  reader: FieldReader,
  nameOf: (name: string) => string = (name) => name,
): ReadStructuredOutputs {
  const text = (name: string, min: number) => reader.string(nameOf(name), { min, max: textMax });
  const flag = (name: string) => reader.boolean(nameOf(name));
  const outputs = withoutUndefined({
    json: readSchema(reader),
    regex: text('regex', 1),
    choice: readChoice(reader),
    grammar: text('grammar', 1),
    // False is the default of both.
    jsonObject: flag('jsonObject') || undefined,
    strict: flag('strict') || undefined,
    disableAnyWhitespace: flag('disableAnyWhitespace'),
    whitespacePattern: text('whitespacePattern', 0),
  });
  reader.finish();
  const given = kinds.filter((name) => outputs[name] !== undefined);
  if (given.length === 1) return Object.freeze(outputs);
  const actual = given.length === 0 ? 'none' : given.map(nameOf).join(' and ');
  throw reader.wrong(`an object with exactly one of ${kinds.map(nameOf).join(', ')}`, actual);
}

/** The text of a schema keeps its digits. */
function readSchema(reader: FieldReader): string | undefined {
  const field = reader.raw('json', shapes.object, shapes.text, shapes.boolean);
  if (field === undefined) return undefined;
  const text = typeof field === 'string' ? field : serialized(reader, field);
  if (text.length > textMax) throw reader.invalid('json', `at most ${textMax} characters`, `${text.length} characters`);
  const schema: unknown = typeof field === 'string' ? parsed(reader, field) : field;
  if (typeof schema === 'boolean' || isJsonObject(schema)) return text;
  throw reader.invalid('json', 'a JSON schema, which is an object', describeValue(schema));
}

function parsed(reader: FieldReader, text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    throw reader.invalid('json', 'a JSON schema');
  }
}

function serialized(reader: FieldReader, field: unknown): string {
  try {
    return writeExactJson(field);
  } catch {
    throw reader.invalid('json', 'a JSON schema without cycles', 'an object that refers to itself');
  }
}

function readChoice(reader: FieldReader): readonly string[] | undefined {
  const field = reader.raw('choice', shapes.texts);
  if (field === undefined) return undefined;
  const wrong = (expected: string, actual?: string) => reader.invalid('choice', expected, actual);
  if (!Array.isArray(field) || field.length === 0 || field.some((text) => typeof text !== 'string' || text === '')) {
    throw wrong('a list of strings, of which none is empty');
  }
  if (field.length > choicesMax) throw wrong(`at most ${choicesMax} strings`, `${field.length} strings`);
  const { length } = field.join('');
  if (length > textMax) throw wrong(`at most ${textMax} characters`, `${length} characters`);
  return Object.freeze([...field] as string[]);
}
