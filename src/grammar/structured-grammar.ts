import type { ReadStructuredOutputs } from '../core/structured-outputs.ts';
import { grammarTooLarge, grammarUnsupported } from './errors.ts';
import { characters, choice, type Expression, type Grammar, optional, repeat, sequence, text } from './expression.ts';
import { GbnfError, parseGbnf } from './gbnf.ts';
import { JsonGrammar, type JsonLayout } from './json-schema.ts';
import type { GrammarLimits } from './limits.ts';
import { NetworkError } from './network-error.ts';
import { RegexError, wholeRegex } from './regex.ts';
import { type Schema, SchemaError } from './schema-keywords.ts';

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

/**
 * Optional white space as models write it: a space, or a new line with its indentation. Unlimited white space would let a
 * model write it without end.
 */
const anySpace = optional(choice(text(' '), sequence(text('\n'), repeat(characters(' ', '\t'), 0, indentMax))));

export function layoutOf({ disableAnyWhitespace, whitespacePattern }: ReadStructuredOutputs): JsonLayout {
  const nothingMore: Expression = { kind: 'sequence', parts: [] };
  if (disableAnyWhitespace === true) return { space: nothingMore, colon: text(': '), comma: text(', ') };
  const space = whitespacePattern === undefined ? anySpace : wholeRegex(whitespacePattern);
  return { space, colon: sequence(text(':'), space), comma: sequence(text(','), space) };
}

export function structuredSource(outputs: ReadStructuredOutputs, parameter = 'structuredOutputs'): GrammarSource {
  const kind = Object.keys(outputs).find((name) => ['json', 'regex', 'choice', 'grammar'].includes(name));
  return {
    key: JSON.stringify(outputs),
    build: (limits) => structuredGrammar(outputs, new JsonGrammar(layoutOf(outputs), limits)),
    job: { kind: 'structured', outputs } satisfies StructuredJob,
    parameter: kind === undefined || parameter.startsWith('response') ? parameter : `${parameter}.${kind}`,
  };
}

/** `json`: has the rules of other JSON in the same grammar. */
export function structuredGrammar(
  outputs: ReadStructuredOutputs,
  json: JsonGrammar = new JsonGrammar(layoutOf(outputs)),
): Grammar {
  const { json: schema, regex, choice: texts, grammar } = outputs;
  if (grammar !== undefined) {
    const { root, rules } = parseGbnf(grammar);
    return { root, rules: new Map([...json.rules, ...rules]) };
  }
  if (regex !== undefined) return json.toGrammar(wholeRegex(regex));
  if (texts !== undefined) return json.toGrammar(choice(...texts.map(text)));
  return json.toGrammar(schema === undefined ? json.object : json.schema(JSON.parse(schema) as Schema));
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
