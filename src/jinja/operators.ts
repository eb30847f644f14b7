import { isNumeric, numberOf } from './compare.ts';
import { TemplateError } from './errors.ts';
import { escapeHtml } from './escape.ts';
import { formatPercent } from './format-percent.ts';
import { charge, chargeText, checkLength } from './meter.ts';
import { isList, isText, Markup, Tuple, textOf, typeName, Undefined, type Value } from './values.ts';

export type Operator = '+' | '-' | '*' | '/' | '//' | '%' | '**';

/** Python's binary operators. */
export function operate(operator: Operator, a: Value, b: Value): Value {
  if (isNumeric(a) && isNumeric(b)) return calculate(operator, numberOf(a), numberOf(b));
  if (operator === '%' && isText(a)) {
    const text = formatPercent(textOf(a), b);
    return typeof a === 'string' ? text : new Markup(text);
  }
  if (a instanceof Undefined) return a.fail();
  if (b instanceof Undefined) return b.fail();
  if (operator === '+') {
    const sum = add(a, b);
    if (sum !== undefined) return sum;
  }
  if (operator === '*') {
    const product = repeated(a, b) ?? repeated(b, a);
    if (product !== undefined) return product;
  }
  throw mismatch(operator, a, b);
}

function mismatch(operator: Operator, a: Value, b: Value): TemplateError {
  const [left, right] = [typeName(a), typeName(b)];
  if (operator === '+' && (left === 'str' || left === 'list' || left === 'tuple')) {
    return new TemplateError(`can only concatenate ${left} (not "${right}") to ${left}`);
  }
  const shown = operator === '**' ? '** or pow()' : operator;
  return new TemplateError(`unsupported operand type(s) for ${shown}: '${left}' and '${right}'`);
}

function add(a: Value, b: Value): Value | undefined {
  if (isText(a) && isText(b)) {
    if (typeof a === 'string' && typeof b === 'string') {
      checkLength(a.length + b.length);
      return a + b;
    }
    return new Markup(escapeHtml(a).text + escapeHtml(b).text);
  }
  if (isList(a) && isList(b)) {
    charge(a.length + b.length);
    return [...a, ...b];
  }
  if (a instanceof Tuple && b instanceof Tuple) {
    charge(a.items.length + b.items.length);
    return new Tuple([...a.items, ...b.items]);
  }
  return undefined;
}

function repeated(value: Value, times: Value): Value | undefined {
  if (typeof times !== 'bigint' && typeof times !== 'boolean') return undefined;
  const count = Math.max(0, Number(times));
  if (isText(value)) {
    const text = textOf(value);
    chargeText(text.length * count);
    const result = text.repeat(text === '' ? 0 : count);
    return typeof value === 'string' ? result : new Markup(result);
  }
  if (!isList(value) && !(value instanceof Tuple)) return undefined;
  const items = isList(value) ? value : value.items;
  charge(items.length * count);
  const result = Array.from({ length: items.length * count }, (_, i) => items[i % items.length]!);
  return isList(value) ? result : new Tuple(result);
}

/** Bits of an int. Python prints no more than 4,300 digits. */
const intBitsMax = 14_284;

function calculate(operator: Operator, a: bigint | number, b: bigint | number): bigint | number {
  if (typeof a === 'bigint' && typeof b === 'bigint') {
    const result = calculateInts(operator, a, b);
    if (result !== undefined) return checkedInt(result);
  }
  return calculateFloats(operator, Number(a), Number(b));
}

/** Undefined: the result is a float. */
function calculateInts(operator: Operator, a: bigint, b: bigint): bigint | undefined {
  switch (operator) {
    case '+':
      return a + b;
    case '-':
      return a - b;
    case '*':
      return a * b;
    case '//':
      if (b === 0n) throw new TemplateError('integer division or modulo by zero');
      return (a - moduloOf(a, b)) / b;
    case '%':
      if (b === 0n) throw new TemplateError('integer modulo by zero');
      return moduloOf(a, b);
    case '**':
      return b < 0n ? undefined : powerOf(a, b);
    case '/':
      return undefined;
  }
}

/** Python's remainder has the sign of the divisor. */
function moduloOf(a: bigint, b: bigint): bigint {
  const rest = a % b;
  return rest !== 0n && rest < 0n !== b < 0n ? rest + b : rest;
}

function powerOf(base: bigint, exponent: bigint): bigint {
  const bits = BigInt(base.toString(2).length);
  if (bits > 1n && bits * exponent > BigInt(2 * intBitsMax)) throw new TemplateError('a number with too many digits');
  return base ** exponent;
}

function checkedInt(value: bigint): bigint {
  const isSmall = value < 2n ** 64n && value > -(2n ** 64n);
  if (isSmall) return value;
  const bits = value.toString(16).length * 4;
  charge(bits / 16);
  if (bits > intBitsMax) throw new TemplateError('a number with too many digits');
  return value;
}

function calculateFloats(operator: Operator, a: number, b: number): number {
  switch (operator) {
    case '+':
      return a + b;
    case '-':
      return a - b;
    case '*':
      return a * b;
    case '**':
      if (a === 0 && b < 0) throw new TemplateError('0.0 cannot be raised to a negative power');
      if (a < 0 && !Number.isInteger(b)) throw new TemplateError('complex numbers are not supported');
      return a ** b;
    default:
      if (b === 0) throw new TemplateError(operator === '/' ? 'division by zero' : 'float floor division by zero');
      if (operator === '/') return a / b;
      return operator === '%' ? floatModulo(a, b) : floorQuotient(a, b);
  }
}

function floatModulo(a: number, b: number): number {
  const rest = a % b;
  if (rest === 0) return b < 0 ? -0 : 0;
  return rest < 0 !== b < 0 ? rest + b : rest;
}

function floorQuotient(a: number, b: number): number {
  const quotient = (a - floatModulo(a, b)) / b;
  const floor = Math.floor(quotient);
  return quotient - floor > 0.5 ? floor + 1 : floor;
}

export function negate(value: Value): Value {
  if (isNumeric(value)) return -numberOf(value);
  if (value instanceof Undefined) return value.fail();
  throw new TemplateError(`bad operand type for unary -: '${typeName(value)}'`);
}

export function positive(value: Value): Value {
  if (isNumeric(value)) return numberOf(value);
  if (value instanceof Undefined) return value.fail();
  throw new TemplateError(`bad operand type for unary +: '${typeName(value)}'`);
}
