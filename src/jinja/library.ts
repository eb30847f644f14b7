import { byName } from '../base/by-name.ts';
import { bind, chargeReading, parameters } from './bind.ts';
import { compare, contains, equals, isNumeric, isSame, type Order } from './compare.ts';
import type { Filter, Library, Test } from './compile-expression.ts';
import { textFilters } from './filters-of-text.ts';
import { lazyFilters, valueFilters } from './filters-of-values.ts';
import { operate } from './operators.ts';
import { print } from './print.ts';
import { isLower, isUpper } from './text-kinds.ts';
import {
  Dict,
  DictView,
  isList,
  isText,
  Markup,
  Range,
  Stream,
  Thing,
  Tuple,
  Undefined,
  type Value,
} from './values.ts';

function test(list: string, run: (value: Value, ...args: Value[]) => boolean): Test {
  const expected = parameters(list);
  return (value, args) => {
    chargeReading(value);
    return run(value, ...(bind('test', expected, args) as Value[]));
  };
}

const plain = (run: (value: Value) => boolean): Test => test('', run);

const order = (operator: Order, isSo: (sign: number) => boolean): Test =>
  test('other', (value, other) => isSo(compare(value, other!, operator)));

const rest = (value: Value, divisor: Value): Value => operate('%', value, divisor);

const equal = test('other', (value, other) => equals(value, other!));
const unequal = test('other', (value, other) => !equals(value, other!));
const below = order('<', (sign) => sign < 0);
const above = order('>', (sign) => sign > 0);
const atMost = order('<=', (sign) => sign <= 0);
const atLeast = order('>=', (sign) => sign >= 0);

const hasItems = (value: Value): boolean =>
  isText(value) || isList(value) || value instanceof Tuple || value instanceof Dict || value instanceof Range;

const tests: Readonly<Record<string, Test>> = byName({
  odd: plain((value) => equals(rest(value, 2n), 1n)),
  even: plain((value) => equals(rest(value, 2n), 0n)),
  divisibleby: test('num', (value, number) => equals(rest(value, number!), 0n)),
  defined: plain((value) => !(value instanceof Undefined)),
  undefined: plain((value) => value instanceof Undefined),
  filter: plain((value) => library.filter(print(value)) !== undefined),
  test: plain((value) => library.test(print(value)) !== undefined),
  none: plain((value) => value === null),
  boolean: plain((value) => typeof value === 'boolean'),
  false: plain((value) => value === false),
  true: plain((value) => value === true),
  integer: plain((value) => typeof value === 'bigint'),
  float: plain((value) => typeof value === 'number'),
  lower: plain((value) => isLower(print(value))),
  upper: plain((value) => isUpper(print(value))),
  string: plain(isText),
  mapping: plain((value) => value instanceof Dict),
  number: plain(isNumeric),
  sequence: plain((value) => hasItems(value) || value instanceof Undefined),
  iterable: plain(
    (value) => hasItems(value) || value instanceof Undefined || value instanceof Stream || value instanceof DictView,
  ),
  callable: plain((value) => value instanceof Undefined || (value instanceof Thing && value.isCallable)),
  sameas: test('other', (value, other) => isSame(value, other!)),
  escaped: plain((value) => value instanceof Markup),
  in: test('seq', (value, container) => contains(container!, value)),
  '==': equal,
  eq: equal,
  equalto: equal,
  '!=': unequal,
  ne: unequal,
  '>': above,
  gt: above,
  greaterthan: above,
  '>=': atLeast,
  ge: atLeast,
  '<': below,
  lt: below,
  lessthan: below,
  '<=': atMost,
  le: atMost,
});

/** All filters and tests. */
export const library: Library = {
  filter: (name): Filter | undefined => (Object.hasOwn(filters, name) ? filters[name] : undefined),
  test: (name): Test | undefined => (Object.hasOwn(tests, name) ? tests[name] : undefined),
};

const filters: Readonly<Record<string, Filter>> = byName({ ...textFilters, ...valueFilters, ...lazyFilters(library) });
