import { AutomatonTooLarge, Budget } from './budget.ts';
import { automatonOfPattern } from './determinize.ts';
import { choiceOf, classOf, codePointMax, type Expression, empty, nothing, repeat, sequence } from './expression.ts';
import { patternOfFormat } from './formats.ts';
import { branchesOf, parseRegex, RegexError } from './regex.ts';
import { pointer, SchemaError } from './schema-keywords.ts';
import { asExpression } from './whole-regex.ts';

/** Text without `<`, so that it cannot contain the tag that ends it. */
const plain = classOf([
  { first: 0, last: 0x3b },
  { first: 0x3d, last: codePointMax },
]);
const anyPlain = repeat(plain, 0, Infinity);
const lengthMax = 1_000_000;

/**
 * The texts that a schema of strings allows, without quotes and escapes. Of several keywords, one holds: a pattern, else a format,
 * else lengths. Undefined: any text. Throws SchemaError.
 */
export function plainTextOf(schema: Readonly<Record<string, unknown>>, place: string): Expression | undefined {
  const { pattern, format, minLength, maxLength } = schema;
  if (typeof pattern === 'string') return withPattern(pattern, pointer(place, 'pattern'));
  const formatted = typeof format === 'string' ? patternOfFormat(format) : undefined;
  if (formatted !== undefined) return withPattern(formatted, pointer(place, 'format'));
  if (minLength === undefined && maxLength === undefined) return undefined;
  return repeat(plain, Number(minLength ?? 0), Math.min(Number(maxLength ?? Infinity), lengthMax));
}

function withPattern(pattern: string, place: string): Expression {
  try {
    const parsed = parseRegex(pattern);
    const branches = branchesOf(parsed);
    if (branches !== undefined) {
      const parts = branches.map(({ body, isAtStart, isAtEnd }) =>
        sequence(isAtStart ? empty : anyPlain, body, isAtEnd ? empty : anyPlain),
      );
      return choiceOf(parts);
    }
    const automaton = automatonOfPattern(parsed, new Budget(), 3000);
    return automaton === undefined ? nothing : asExpression(automaton);
  } catch (error) {
    if (error instanceof AutomatonTooLarge) throw new SchemaError(place, 'the pattern needs too many states', true);
    if (!(error instanceof RegexError)) throw error;
    throw new SchemaError(place, `the pattern has ${error.message}, which is not supported,`);
  }
}
