import { choice, classOf, codePointMax, type Expression, empty, repeat, sequence } from './expression.ts';
import { stringOfFormat } from './json-text.ts';
import { parseRegex, RegexError } from './regex.ts';
import { pointer, SchemaError } from './schema-keywords.ts';

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
  const formatted = typeof format === 'string' ? stringOfFormat(format) : undefined;
  // The texts of formats need no escapes, so without the quotes they are the same.
  if (formatted?.kind === 'sequence' && formatted.parts.length === 3) return formatted.parts[1]!;
  if (minLength === undefined && maxLength === undefined) return undefined;
  return repeat(plain, Number(minLength ?? 0), Math.min(Number(maxLength ?? Infinity), lengthMax));
}

function withPattern(pattern: string, place: string): Expression {
  try {
    const branches = parseRegex(pattern).map(({ body, isAtStart, isAtEnd }) =>
      sequence(isAtStart ? empty : anyPlain, body, isAtEnd ? empty : anyPlain),
    );
    return choice(...branches);
  } catch (error) {
    if (!(error instanceof RegexError)) throw error;
    throw new SchemaError(place, `the pattern has ${error.message}, which is not supported,`);
  }
}
