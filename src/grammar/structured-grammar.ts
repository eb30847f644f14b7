import { JsonLimitError, type JsonLimits, jsonLimits, readExactJson } from '../base/exact-json.ts';
import type { ReadStructuredOutputs } from '../core/structured-outputs.ts';
import { AutomatonTooLarge, Budget, type GrammarLimits, LimitError } from './budget.ts';
import { grammarTooLarge, grammarUnsupported } from './errors.ts';
import { characters, choice, choiceOf, empty, type Grammar, optional, repeat, sequence, text } from './expression.ts';
import { GbnfError, parseGbnf } from './gbnf.ts';
import { JsonGrammar, type JsonLayout } from './json-grammar.ts';
import { NetworkError } from './network-error.ts';
import { RegexError } from './regex.ts';
import { type Schema, SchemaError } from './schema-keywords.ts';
import { wholeRegex } from './whole-regex.ts';

/** A grammar that is not built yet. Sources with equal keys have equal grammars. */
export interface GrammarSource {
  readonly key: string;
  /** Throws what `refusalOf` understands. */
  build(limits: GrammarLimits): Grammar;
  /** Plain data, from which another thread can build the grammar. */
  readonly job: object;
  /** The name of the field, for errors. */
  readonly parameter: string;
}

/** The job of a source that is an output's structure, and nothing more. */
export interface StructuredJob {
  readonly kind: 'structured';
  readonly outputs: ReadStructuredOutputs;
}

const indentMax = 40;

/** White space as models write it: a space, or a new line with its indentation. */
const anySpace = optional(choice(text(' '), sequence(text('\n'), repeat(characters(' ', '\t'), 0, indentMax))));

/**
 * By default a space may follow colons and commas. Free white space costs tokens, and lets a model that is lost write
 * new lines until the limit of tokens.
 */
export function layoutOf({ disableAnyWhitespace, whitespacePattern }: ReadStructuredOutputs): JsonLayout {
  const space = optional(text(' '));
  if (disableAnyWhitespace === true) return { space: empty, colon: text(': '), comma: text(', ') };
  if (whitespacePattern === undefined && disableAnyWhitespace === undefined)
    return { space: empty, colon: sequence(text(':'), space), comma: sequence(text(','), space) };
  const free = whitespacePattern === undefined ? anySpace : wholeRegex(whitespacePattern, new Budget());
  return { space: free, colon: sequence(text(':'), free), comma: sequence(text(','), free) };
}

export function structuredSource(outputs: ReadStructuredOutputs, parameter = 'structuredOutputs'): GrammarSource {
  const kind = Object.keys(outputs).find((name) => ['json', 'regex', 'choice', 'grammar'].includes(name));
  return {
    key: JSON.stringify(outputs),
    build: (limits) => structuredGrammar(outputs, new JsonGrammar(layoutOf(outputs), new Budget(limits))),
    job: { kind: 'structured', outputs } satisfies StructuredJob,
    parameter: kind === undefined || parameter.startsWith('response') ? parameter : `${parameter}.${kind}`,
  };
}

/** `json`: has the rules of other JSON in the same grammar. */
export function structuredGrammar(
  outputs: ReadStructuredOutputs,
  json: JsonGrammar = new JsonGrammar(layoutOf(outputs)),
): Grammar {
  const { json: schema, regex, choice: texts, grammar, strict } = outputs;
  if (grammar !== undefined) {
    const { root, rules } = parseGbnf(grammar);
    return { root, rules: new Map([...json.rules, ...rules]) };
  }
  if (regex !== undefined) return json.toGrammar(wholeRegex(regex, json.budget));
  if (texts !== undefined) return json.toGrammar(choiceOf(texts.map(text)));
  return json.toGrammar(schema === undefined ? json.object : json.schema(readSchema(schema), strict === true));
}

/** A schema has more levels than a request, because it can be a text. */
const schemaLimits: JsonLimits = { ...jsonLimits, levels: 500, fieldNames: 2 ** 16 };

/** @throws SchemaError */
export function readSchema(json: string): Schema {
  try {
    return readExactJson(json, schemaLimits) as Schema;
  } catch (error) {
    if (error instanceof JsonLimitError) throw new LimitError(`it has more than ${error.limit} ${error.what}`);
    throw error;
  }
}

/** The reason why a grammar cannot be compiled. Plain data. */
export interface Refusal {
  readonly problem: string;
  /** With higher limits it may be compiled. */
  readonly isTooLarge: boolean;
}

/** Undefined for other errors, which are bugs. */
export function refusalOf(error: unknown): Refusal | undefined {
  if (error instanceof SchemaError) return { problem: error.message, isTooLarge: error.isTooLarge };
  if (error instanceof LimitError) return { problem: error.message, isTooLarge: true };
  if (error instanceof AutomatonTooLarge) return { problem: 'the pattern needs too many states', isTooLarge: true };
  if (error instanceof RegexError) return { problem: `the pattern has ${error.message}`, isTooLarge: false };
  if (error instanceof GbnfError) return { problem: error.message, isTooLarge: false };
  if (!(error instanceof NetworkError)) return undefined;
  const { problem } = error;
  if (problem.kind === 'tooLarge') return { problem: `it has more than ${problem.limit} states`, isTooLarge: true };
  return { problem: describe(problem), isTooLarge: false };
}

/** The error for the client. */
export const refused = ({ problem, isTooLarge }: Refusal, parameter: string): Error =>
  isTooLarge ? grammarTooLarge({ parameter, problem }) : grammarUnsupported({ parameter, problem });

function describe(problem: Exclude<NetworkError['problem'], { kind: 'tooLarge' }>): string {
  if (problem.kind === 'matchesNothing') return 'no output matches it';
  if (problem.kind === 'unknownRule') return `there is no rule \`${problem.rule}\``;
  return `the rule \`${problem.rule}\` begins with itself (left recursion): write it with a repetition`;
}
