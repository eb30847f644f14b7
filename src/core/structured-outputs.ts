import { describeValue } from '../base/describe-value.ts';
import { writeExactJson } from '../base/exact-json.ts';
import { invalidParameter } from './errors.ts';

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

const kinds = ['json', 'regex', 'choice', 'grammar', 'jsonObject'] as const;
const others = ['disableAnyWhitespace', 'whitespacePattern', 'strict'] as const;
const flags = ['disableAnyWhitespace', 'strict'] as const;

/** In UTF-16 units: compiling takes less than 50 ms. */
const textMax = 256 * 1024;
const choicesMax = 10_000;

/** False is the default of `jsonObject` and `strict`, and a schema without values. */
const isSet = (name: string, field: unknown): boolean =>
  field !== false || (name !== 'jsonObject' && name !== 'strict');

/** Throws `invalidParameter`. `names`: the names of the fields as the caller writes them. */
export function readStructuredOutputs(value: unknown, parameter = 'structuredOutputs'): ReadStructuredOutputs {
  const shown = kinds.map((name) => (name === 'jsonObject' && parameter.includes('_') ? 'json_object' : name));
  const wrong = (field: string, expected: string, actual: string) =>
    invalidParameter({ parameter: field === '' ? parameter : `${parameter}.${field}`, expected, actual });
  if (typeof value !== 'object' || value === null || Array.isArray(value)) {
    throw wrong('', 'an object', describeValue(value));
  }
  const fields = Object.entries(value).filter(([, field]) => field !== undefined && field !== null);
  const given = fields
    .filter(([name, field]) => kinds.includes(name as never) && isSet(name, field))
    .map(([name]) => name);
  for (const [name, field] of fields) {
    if (![...kinds, ...others].includes(name as never)) {
      throw wrong(name.slice(0, 40), `absent (known: ${[...kinds, ...others].join(', ')})`, describeValue(field));
    }
  }
  if (given.length !== 1) {
    throw wrong(
      '',
      `an object with exactly one of ${shown.join(', ')}`,
      given.length === 0 ? 'none' : given.join(' and '),
    );
  }
  return Object.freeze(
    Object.fromEntries(
      fields.filter(([name, field]) => isSet(name, field)).map(([name, field]) => [name, read(name, field)]),
    ),
  );

  function read(name: string, field: unknown): unknown {
    if (name === 'json') return readSchema(field);
    if (name === 'choice') return readChoice(field);
    if (name === 'jsonObject' || flags.includes(name as never)) {
      if (typeof field !== 'boolean') throw wrong(name, 'true or false', describeValue(field));
      return field;
    }
    if (typeof field !== 'string') throw wrong(name, 'a string', describeValue(field));
    if (field === '' && name !== 'whitespacePattern') throw wrong(name, 'a string that is not empty', '""');
    return limited(name, field);
  }

  function readSchema(field: unknown): string {
    if (typeof field === 'string') {
      limited('json', field);
      try {
        return checked(JSON.parse(field), field);
      } catch (error) {
        if (!(error instanceof SyntaxError)) throw error;
        throw wrong('json', 'a JSON schema', describeValue(field));
      }
    }
    return limited('json', checked(field, serialized(field)));
  }

  /** The text of a schema keeps its digits. */
  function checked(schema: unknown, text: string): string {
    const isSchema =
      typeof schema === 'boolean' || (typeof schema === 'object' && schema !== null && !Array.isArray(schema));
    if (!isSchema) throw wrong('json', 'a JSON schema, which is an object', describeValue(schema));
    return text;
  }

  function serialized(field: unknown): string {
    try {
      return writeExactJson(field);
    } catch {
      throw wrong('json', 'a JSON schema without cycles', 'an object that refers to itself');
    }
  }

  function readChoice(field: unknown): readonly string[] {
    if (!Array.isArray(field) || field.length === 0 || field.some((text) => typeof text !== 'string' || text === '')) {
      throw wrong('choice', 'a list of strings, of which none is empty', describeValue(field));
    }
    if (field.length > choicesMax) throw wrong('choice', `at most ${choicesMax} strings`, `${field.length} strings`);
    limited('choice', field.join(''));
    return Object.freeze([...field] as string[]);
  }

  function limited(name: string, text: string): string {
    if (text.length > textMax) throw wrong(name, `at most ${textMax} characters`, `${text.length} characters`);
    return text;
  }
}
