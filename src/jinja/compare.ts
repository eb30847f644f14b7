import { TemplateError } from './errors.ts';
import { charge, chargeText } from './meter.ts';
import {
  Dict,
  DictView,
  isList,
  isText,
  iterate,
  Markup,
  Range,
  Stream,
  Tuple,
  textOf,
  typeName,
  Undefined,
  type Value,
} from './values.ts';

type Numeric = boolean | bigint | number;
export const isNumeric = (value: Value): value is Numeric =>
  typeof value === 'bigint' || typeof value === 'number' || typeof value === 'boolean';

/** A bool is an int. */
export const numberOf = (value: Numeric): bigint | number => (typeof value === 'boolean' ? BigInt(value) : value);

/** Python's `==`. */
export function equals(a: Value, b: Value): boolean {
  charge(1);
  if (isNumeric(a)) {
    // biome-ignore lint/suspicious/noDoubleEquals: JavaScript compares a bigint with a number exactly by `==` only.
    return isNumeric(b) && numberOf(a) == numberOf(b);
  }
  if (isText(a)) return isText(b) && equalTexts(textOf(a), textOf(b));
  if (isList(a)) return isList(b) && allEqual(a, b);
  if (a instanceof Tuple) return b instanceof Tuple && allEqual(a.items, b.items);
  if (a instanceof Dict) return b instanceof Dict && equalDicts(a, b);
  if (a instanceof Range) return b instanceof Range && equalRanges(a, b);
  if (a instanceof Undefined) return b instanceof Undefined;
  return a === b;
}

function equalTexts(a: string, b: string): boolean {
  if (a.length !== b.length) return false;
  charge(a.length / 16);
  return a === b;
}

const allEqual = (a: readonly Value[], b: readonly Value[]): boolean =>
  a.length === b.length && a.every((item, i) => item === b[i] || equals(item, b[i]!));

function equalDicts(a: Dict, b: Dict): boolean {
  if (a.size !== b.size) return false;
  for (const [key, value] of a.entries()) {
    const other = b.get(key);
    if (other === undefined || !equals(value, other)) return false;
  }
  return true;
}

const equalRanges = (a: Range, b: Range): boolean =>
  a.length === b.length && (a.length === 0 || (a.start === b.start && (a.length === 1 || a.step === b.step)));

export type Order = '<' | '<=' | '>' | '>=';

/** Below 0 if a comes before b. @throws TemplateError with the operator if values of these types have no order. */
export function compare(a: Value, b: Value, operator: Order): number {
  charge(1);
  if (isNumeric(a) && isNumeric(b)) {
    const [left, right] = [numberOf(a), numberOf(b)];
    if (left < right) return -1;
    if (left > right) return 1;
    // NaN is neither below, above nor equal.
    return left >= right ? 0 : Number.NaN;
  }
  if (isText(a) && isText(b)) return compareTexts(textOf(a), textOf(b));
  if (isList(a) && isList(b)) return compareLists(a, b, operator);
  if (a instanceof Tuple && b instanceof Tuple) return compareLists(a.items, b.items, operator);
  if (a instanceof Undefined) return a.fail();
  if (b instanceof Undefined) return b.fail();
  const types = `'${typeName(a)}' and '${typeName(b)}'`;
  throw new TemplateError(`'${operator}' not supported between instances of ${types}`);
}

/** By code points. JavaScript orders by units, in which characters above U+FFFF come before those from U+E000. */
function compareTexts(a: string, b: string): number {
  chargeText(Math.min(a.length, b.length));
  if (a === b) return 0;
  let at = 0;
  while (at < a.length && at < b.length && a.charCodeAt(at) === b.charCodeAt(at)) at++;
  if (at > 0 && isLowSurrogate(a.charCodeAt(at)) && isLowSurrogate(b.charCodeAt(at))) at--;
  return (a.codePointAt(at) ?? -1) - (b.codePointAt(at) ?? -1);
}

const isLowSurrogate = (unit: number): boolean => unit >= 0xdc00 && unit <= 0xdfff;

function compareLists(a: readonly Value[], b: readonly Value[], operator: Order): number {
  for (let i = 0; i < a.length && i < b.length; i++) {
    const [left, right] = [a[i]!, b[i]!];
    if (left !== right && !equals(left, right)) return compare(left, right, operator);
  }
  return a.length - b.length;
}

/** Python's `in`. */
export function contains(container: Value, item: Value): boolean {
  if (isText(container)) {
    if (!isText(item)) {
      throw new TemplateError(`'in <string>' requires string as left operand, not ${typeName(item)}`);
    }
    const text = textOf(container);
    chargeText(text.length);
    return text.includes(textOf(item));
  }
  if (container instanceof Dict) return container.has(item);
  if (container instanceof DictView && container.kind === 'keys') return container.dict.has(item);
  const isIterable =
    isList(container) ||
    container instanceof Tuple ||
    container instanceof Range ||
    container instanceof DictView ||
    container instanceof Stream ||
    container instanceof Undefined;
  if (!isIterable) throw new TemplateError(`argument of type '${typeName(container)}' is not iterable`);
  for (const other of iterate(container)) if (other === item || equals(other, item)) return true;
  return false;
}

/** Python's `is`. */
export function isSame(a: Value, b: Value): boolean {
  return a === b || (a instanceof Markup && b instanceof Markup && a.text === b.text);
}

/** Python's `sorted`: stable, also in reverse. */
export function sorted(values: readonly Value[], keyOf: (value: Value) => Value, isReverse: boolean): Value[] {
  const pairs = values.map((value) => [keyOf(value), value] as const);
  const sign = isReverse ? -1 : 1;
  return pairs.sort(([a], [b]) => sign * compare(a, b, '<')).map(([, value]) => value);
}
