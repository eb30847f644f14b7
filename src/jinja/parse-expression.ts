import type { BinaryOperator, CallArguments, Comparison, Expression, Slice } from './ast.ts';
import type { TokenStream } from './token-stream.ts';

/** An expression: `a if b else c` and all that binds more tightly. */
export function parseExpression(stream: TokenStream, hasConditions = true): Expression {
  if (!hasConditions) return parseOr(stream);
  let { line } = stream.current;
  let then = parseOr(stream);
  while (stream.skipName('if')) {
    const test = parseOr(stream);
    const otherwise = stream.skipName('else') ? parseExpression(stream) : undefined;
    then = { kind: 'conditional', test, then, otherwise, line };
    line = stream.current.line;
  }
  return then;
}

/** Expressions between commas make a tuple. `isOver`: a word that ends it. */
export function parseTuple(
  stream: TokenStream,
  { hasConditions = true, isInParentheses = false, isOver = () => false }: TupleOptions = {},
): Expression {
  const items: Expression[] = [];
  let isTuple = false;
  for (;;) {
    if (items.length > 0) stream.expectOperator(',');
    if (stream.isEnd() || stream.isOperator(')') || isOver()) break;
    items.push(parseExpression(stream, hasConditions));
    if (!stream.isOperator(',')) break;
    isTuple = true;
  }
  if (isTuple) return { kind: 'tuple', items };
  const [only] = items;
  if (only !== undefined) return only;
  if (!isInParentheses) throw stream.unexpected('an expression');
  return { kind: 'tuple', items };
}

interface TupleOptions {
  readonly hasConditions?: boolean;
  readonly isInParentheses?: boolean;
  readonly isOver?: () => boolean;
}

function parseOr(stream: TokenStream): Expression {
  let left = parseAnd(stream);
  while (stream.skipName('or')) left = { kind: 'or', left, right: parseAnd(stream) };
  return left;
}

function parseAnd(stream: TokenStream): Expression {
  let left = parseNot(stream);
  while (stream.skipName('and')) left = { kind: 'and', left, right: parseNot(stream) };
  return left;
}

function parseNot(stream: TokenStream): Expression {
  return stream.skipName('not') ? { kind: 'not', value: parseNot(stream) } : parseComparison(stream);
}

const comparisons = new Set(['==', '!=', '<', '<=', '>', '>=']);

function parseComparison(stream: TokenStream): Expression {
  const first = parseSum(stream);
  const rest: Comparison[] = [];
  for (;;) {
    const operator = comparisonOperator(stream);
    if (operator === undefined) break;
    rest.push({ operator, right: parseSum(stream) });
  }
  return rest.length === 0 ? first : { kind: 'compare', first, rest };
}

function comparisonOperator(stream: TokenStream): Comparison['operator'] | undefined {
  const { kind, text } = stream.current;
  if (kind === 'operator' && comparisons.has(text)) return stream.next().text as Comparison['operator'];
  if (stream.skipName('in')) return 'in';
  if (!stream.isName('not') || stream.following.kind !== 'name' || stream.following.text !== 'in') return undefined;
  stream.next();
  stream.next();
  return 'not in';
}

/** In templates, `~` binds more tightly than `+`. */
const parseSum = (stream: TokenStream): Expression => parseBinary(stream, ['+', '-'], parseConcat);
const parseProduct = (stream: TokenStream): Expression => parseBinary(stream, ['*', '/', '//', '%'], parsePower);
const parsePower = (stream: TokenStream): Expression => parseBinary(stream, ['**'], parseUnary);

function parseBinary(
  stream: TokenStream,
  operators: readonly BinaryOperator[],
  parse: (stream: TokenStream) => Expression,
): Expression {
  let left = parse(stream);
  for (;;) {
    const operator = operators.find((one) => stream.isOperator(one));
    if (operator === undefined) return left;
    stream.next();
    left = { kind: 'binary', operator, left, right: parse(stream) };
  }
}

function parseConcat(stream: TokenStream): Expression {
  const parts = [parseProduct(stream)];
  while (stream.skipOperator('~')) parts.push(parseProduct(stream));
  return parts.length === 1 ? parts[0]! : { kind: 'concat', parts };
}

function parseUnary(stream: TokenStream, hasFilters = true): Expression {
  const isNegative = stream.isOperator('-');
  let value: Expression;
  if (isNegative || stream.isOperator('+')) {
    stream.next();
    value = { kind: isNegative ? 'negative' : 'positive', value: parseUnary(stream, false) };
  } else value = parsePrimary(stream);
  value = parsePostfix(stream, value);
  return hasFilters ? parseFilters(stream, value) : value;
}

const constants: ReadonlyMap<string, null | boolean> = new Map([
  ['true', true],
  ['True', true],
  ['false', false],
  ['False', false],
  ['none', null],
  ['None', null],
]);

/** True if the name is a constant, which cannot be assigned to. */
export const isConstant = (name: string): boolean => constants.has(name);

function parsePrimary(stream: TokenStream): Expression {
  const { kind, text, value } = stream.current;
  if (kind === 'name') {
    stream.next();
    const constant = constants.get(text);
    return constant === undefined ? { kind: 'name', name: text } : { kind: 'constant', value: constant };
  }
  if (kind === 'string') {
    let whole = '';
    while (stream.current.kind === 'string') whole += stream.next().text;
    return { kind: 'constant', value: whole };
  }
  if (kind === 'number') {
    stream.next();
    return { kind: 'constant', value: value! };
  }
  if (stream.skipOperator('(')) {
    const tuple = parseTuple(stream, { isInParentheses: true });
    stream.expectOperator(')');
    return tuple;
  }
  if (stream.skipOperator('[')) {
    return { kind: 'list', items: parseItems(stream, ']', () => parseExpression(stream)) };
  }
  if (stream.skipOperator('{')) {
    const entries = parseItems(stream, '}', () => {
      const key = parseExpression(stream);
      stream.expectOperator(':');
      return [key, parseExpression(stream)] as const;
    });
    return { kind: 'dict', entries };
  }
  throw stream.unexpected('an expression');
}

function parseItems<T>(stream: TokenStream, end: string, parse: () => T): T[] {
  const items: T[] = [];
  while (!stream.isOperator(end)) {
    if (items.length > 0) stream.expectOperator(',');
    if (stream.isOperator(end)) break;
    items.push(parse());
  }
  stream.expectOperator(end);
  return items;
}

function parsePostfix(stream: TokenStream, start: Expression): Expression {
  let value = start;
  for (;;) {
    if (stream.skipOperator('.')) value = parseDot(stream, value);
    else if (stream.skipOperator('[')) value = parseBrackets(stream, value);
    else if (stream.isOperator('(')) value = { kind: 'call', callee: value, args: parseArguments(stream) };
    else return value;
  }
}

function parseDot(stream: TokenStream, object: Expression): Expression {
  const { kind, text, value } = stream.current;
  if (kind === 'name') {
    stream.next();
    return { kind: 'attribute', object, name: text };
  }
  if (kind !== 'number' || typeof value !== 'bigint') throw stream.unexpected('a name or a number');
  stream.next();
  return { kind: 'item', object, key: { kind: 'constant', value } };
}

function parseBrackets(stream: TokenStream, object: Expression): Expression {
  const parts: (Expression | Slice)[] = [];
  while (!stream.isOperator(']')) {
    if (parts.length > 0) stream.expectOperator(',');
    parts.push(parseSubscript(stream));
  }
  stream.expectOperator(']');
  const [only] = parts;
  if (parts.length === 1 && only !== undefined) {
    return isSlice(only) ? { kind: 'slice', object, slice: only } : { kind: 'item', object, key: only };
  }
  // No value has items by a tuple with slices.
  const items = parts.map((part): Expression => (isSlice(part) ? { kind: 'constant', value: null } : part));
  return { kind: 'item', object, key: { kind: 'tuple', items } };
}

const isSlice = (part: Expression | Slice): part is Slice => !('kind' in part);

function parseSubscript(stream: TokenStream): Expression | Slice {
  const isOver = (): boolean => stream.isOperator(':') || stream.isOperator(']') || stream.isOperator(',');
  const start = stream.isOperator(':') ? undefined : parseExpression(stream);
  if (!stream.skipOperator(':')) return start!;
  const stop = isOver() ? undefined : parseExpression(stream);
  const step = stream.skipOperator(':') && !isOver() ? parseExpression(stream) : undefined;
  return { start, stop, step };
}

export function parseArguments(stream: TokenStream): CallArguments {
  stream.expectOperator('(');
  const positional: Expression[] = [];
  const named: (readonly [string, Expression])[] = [];
  let moreItems: Expression | undefined;
  let moreNames: Expression | undefined;
  const check = (isRight: boolean): void => {
    if (!isRight) throw stream.error('invalid syntax for function call expression');
  };
  let isFirst: boolean = true;
  for (; !stream.isOperator(')'); isFirst = false) {
    if (!isFirst) {
      stream.expectOperator(',');
      if (stream.isOperator(')')) break;
    }
    if (stream.skipOperator('*')) {
      check(moreItems === undefined && moreNames === undefined);
      moreItems = parseExpression(stream);
    } else if (stream.skipOperator('**')) {
      check(moreNames === undefined);
      moreNames = parseExpression(stream);
    } else if (
      stream.current.kind === 'name' &&
      stream.following.kind === 'operator' &&
      stream.following.text === '='
    ) {
      check(moreNames === undefined);
      const name = stream.next().text;
      stream.next();
      named.push([name, parseExpression(stream)]);
    } else {
      check(moreItems === undefined && moreNames === undefined && named.length === 0);
      positional.push(parseExpression(stream));
    }
  }
  stream.expectOperator(')');
  return { positional, named, moreItems, moreNames };
}

const noArguments: CallArguments = { positional: [], named: [], moreItems: undefined, moreNames: undefined };

function parseFilters(stream: TokenStream, start: Expression): Expression {
  let value = start;
  for (;;) {
    if (stream.skipOperator('|')) value = parseFilter(stream, value);
    else if (stream.skipName('is')) value = parseTest(stream, value);
    else if (stream.isOperator('(')) value = { kind: 'call', callee: value, args: parseArguments(stream) };
    else return value;
  }
}

/** The name and arguments of a filter, after the `|`. */
export function parseFilter(stream: TokenStream, value: Expression): Expression {
  const name = dottedName(stream);
  return { kind: 'filter', value, name, args: stream.isOperator('(') ? parseArguments(stream) : noArguments };
}

function dottedName(stream: TokenStream): string {
  let name = stream.name();
  while (stream.skipOperator('.')) name += `.${stream.name()}`;
  return name;
}

function parseTest(stream: TokenStream, value: Expression): Expression {
  const isNegated = stream.skipName('not');
  const name = dottedName(stream);
  const args = stream.isOperator('(') ? parseArguments(stream) : testArgument(stream);
  const test: Expression = { kind: 'test', value, name, args };
  return isNegated ? { kind: 'not', value: test } : test;
}

/** A test may have one argument without parentheses: `x is divisibleby 3`. */
function testArgument(stream: TokenStream): CallArguments {
  const { kind } = stream.current;
  const isOpening = stream.isOperator('[') || stream.isOperator('{');
  const isWord = ['else', 'or', 'and'].some((word) => stream.isName(word));
  if (isWord || !(kind === 'name' || kind === 'string' || kind === 'number' || isOpening)) return noArguments;
  if (stream.isName('is')) throw stream.error('You cannot chain multiple tests with is');
  return { ...noArguments, positional: [parsePostfix(stream, parsePrimary(stream))] };
}
