import { byName } from '../base/by-name.ts';
import { itemOf, onlyAttributeOf } from './access.ts';
import { intOf } from './bind.ts';
import { compare, equals, isNumeric, numberOf, sorted } from './compare.ts';
import type { Filter, Library } from './compile-expression.ts';
import { TemplateError } from './errors.ts';
import { filter } from './filters-of-text.ts';
import { fixed } from './format-number.ts';
import { charge, joinTexts } from './meter.ts';
import { toFloat, toInt } from './numbers-of-text.ts';
import { operate } from './operators.ts';
import { print } from './print.ts';
import {
  type Arguments,
  Dict,
  DictView,
  Group,
  isText,
  isTrue,
  iterate,
  lengthOf,
  lettersOf,
  listOf,
  Markup,
  orElse,
  Stream,
  type Tuple,
  textOf,
  typeName,
  Undefined,
  type Value,
} from './values.ts';

const isSet = (value: Value | undefined): boolean => value !== undefined && isTrue(value);

/** Python's `sorted` takes ints and bools. */
const isReversed = (value: Value | undefined): boolean => value !== undefined && intOf(value) !== 0;

type Getter = (item: Value) => Value;

/** Reads `a.b.0` of an item. */
export function getter(attribute: Value | undefined, fallback?: Value): Getter {
  const parts = partsOf(attribute);
  return (item) => {
    let value = item;
    for (const part of parts) {
      value = itemOf(value, part);
      if (value instanceof Undefined && fallback !== undefined && fallback !== null) value = fallback;
    }
    return value;
  };
}

function partsOf(attribute: Value | undefined): readonly Value[] {
  if (attribute === undefined || attribute === null) return [];
  if (!isText(attribute)) return [attribute];
  return textOf(attribute)
    .split('.')
    .map((part) => (/^\d+$/.test(part) ? BigInt(part) : part));
}

const folded = (value: Value): Value => (isText(value) ? textOf(value).toLowerCase() : value);
const folding = (read: Getter, isCaseSensitive: boolean): Getter =>
  isCaseSensitive ? read : (item) => folded(read(item));

function sort(value: Value, [reverse, caseSensitive, attribute]: readonly (Value | undefined)[]): Value {
  const names = attribute !== undefined && isText(attribute) ? textOf(attribute).split(',') : [attribute];
  const getters = names.map((name) => folding(getter(name), isSet(caseSensitive)));
  return sorted(listOf(value), (item) => getters.map((read) => read(item)), isReversed(reverse));
}

function dictSort(value: Value, [caseSensitive, by, reverse]: readonly (Value | undefined)[]): Value {
  if (value instanceof Undefined) return value.fail();
  if (!(value instanceof Dict)) throw new TemplateError(`'${typeName(value)}' object has no attribute 'items'`);
  const key = by === undefined ? 'key' : print(by);
  if (key !== 'key' && key !== 'value') throw new TemplateError('You can only sort by either "key" or "value"');
  const place = key === 'key' ? 0 : 1;
  const read = folding((item) => (item as Tuple).items[place]!, isSet(caseSensitive));
  return sorted(listOf(new DictView('items', value)), read, isReversed(reverse));
}

function groupBy(value: Value, [attribute, fallback, caseSensitive]: readonly (Value | undefined)[]): Value {
  const read = getter(attribute, fallback);
  const key = folding(read, isSet(caseSensitive));
  const groups: { readonly key: Value; readonly items: Value[] }[] = [];
  for (const item of sorted(listOf(value), key, false)) {
    const last = groups.at(-1);
    const own = key(item);
    if (last !== undefined && equals(last.key, own)) last.items.push(item);
    else groups.push({ key: own, items: [item] });
  }
  return groups.map(({ items }) => new Group([read(items[0]!), items]));
}

function unique(value: Value, [caseSensitive, attribute]: readonly (Value | undefined)[]): Value {
  const key = folding(getter(attribute), isSet(caseSensitive));
  return new Stream(
    (function* () {
      const seen = new Dict();
      for (const item of iterate(value)) {
        const own = key(item);
        if (seen.has(own)) continue;
        seen.set(own, null);
        yield item;
      }
    })(),
  );
}

function extreme(value: Value, [caseSensitive, attribute]: readonly (Value | undefined)[], isMax: boolean): Value {
  const key = folding(getter(attribute), isSet(caseSensitive));
  let best: { readonly item: Value; readonly key: Value } | undefined;
  for (const item of iterate(value)) {
    const own = key(item);
    if (best === undefined || compare(own, best.key, isMax ? '>' : '<') * (isMax ? 1 : -1) > 0)
      best = { item, key: own };
  }
  return orElse(best?.item, () => new Undefined('No aggregated item, sequence was empty.'));
}

function sum(value: Value, attribute: Value | undefined, start: Value | undefined): Value {
  const read = getter(attribute);
  let total: Value = orElse(start, () => 0n);
  if (isText(total)) throw new TemplateError("sum() can't sum strings [use ''.join(seq) instead]");
  for (const item of iterate(value)) total = operate('+', total, read(item));
  return total;
}

function join(value: Value, separator: Value | undefined, attribute: Value | undefined): Value {
  const read = getter(attribute);
  const texts: string[] = [];
  for (const item of iterate(value)) texts.push(print(read(item)));
  return joinTexts(separator === undefined ? '' : print(separator), texts);
}

function first(value: Value): Value {
  for (const item of iterate(value)) return item;
  return new Undefined('No first item, sequence was empty.');
}

function last(value: Value): Value {
  checkReversible(value);
  return orElse(listOf(value).at(-1), () => new Undefined('No last item, sequence was empty.'));
}

function checkReversible(value: Value): void {
  if (value instanceof Stream) throw new TemplateError(`'${value.typeName}' object is not reversible`);
}

function reverse(value: Value): Value {
  if (isText(value)) {
    const text = lettersOf(textOf(value)).reverse().join('');
    return typeof value === 'string' ? text : new Markup(text);
  }
  const items = listOf(value).reverse();
  return value instanceof Stream || value instanceof Undefined
    ? items
    : new Stream(items, `${typeName(value)}_reverseiterator`);
}

function batch(value: Value, size: Value, fill: Value | undefined): Value {
  const count = intOf(size);
  const isFilled = fill !== undefined && fill !== null;
  return new Stream(
    (function* (): Generator<Value> {
      let row: Value[] = [];
      for (const item of iterate(value)) {
        if (row.length === count) {
          yield row;
          row = [];
        }
        row.push(item);
      }
      if (row.length === 0) return;
      charge(isFilled ? Math.max(0, count - row.length) : 0);
      while (isFilled && row.length < count) row.push(fill);
      yield row;
    })(),
  );
}

function slice(value: Value, slices: Value, fill: Value | undefined): Value {
  return new Stream(
    (function* (): Generator<Value> {
      const items = listOf(value);
      const count = intOf(slices);
      if (count === 0) throw new TemplateError('integer division or modulo by zero');
      const [size, longer] = [Math.floor(items.length / count), items.length % count];
      let start = 0;
      for (let i = 0; i < count; i++) {
        charge(1);
        const end = start + size + (i < longer ? 1 : 0);
        const part = items.slice(start, end);
        yield fill !== undefined && fill !== null && i >= longer ? [...part, fill] : part;
        start = end;
      }
    })(),
  );
}

function round(value: Value, precision: Value | undefined, method: Value | undefined): Value {
  const digits = precision === undefined ? 0 : intOf(precision);
  const kind = method === undefined ? 'common' : print(method);
  if (!['common', 'ceil', 'floor'].includes(kind)) throw new TemplateError('method must be common, ceil or floor');
  if (!isNumeric(value)) throw new TemplateError(`type ${typeName(value)} doesn't define __round__ method`);
  const number = numberOf(value);
  if (kind !== 'common') {
    const scale = 10 ** digits;
    return (kind === 'ceil' ? Math.ceil : Math.floor)(Number(number) * scale) / scale;
  }
  if (typeof number === 'number') return roundFloat(number, digits);
  return digits >= 0 ? number : roundInt(number, 10n ** BigInt(Math.min(-digits, 5000)));
}

function roundFloat(value: number, digits: number): number {
  if (!Number.isFinite(value)) return value;
  if (digits < 0) return Number(roundInt(BigInt(Math.round(value)), 10n ** BigInt(Math.min(-digits, 400))));
  const rounded = Number(fixed(Math.abs(value), Math.min(digits, 100)));
  return value < 0 || Object.is(value, -0) ? -rounded : rounded;
}

/** To a multiple of the unit, and halves to an even one. */
function roundInt(value: bigint, unit: bigint): bigint {
  const rest = ((value % unit) + unit) % unit;
  const below = value - rest;
  const isUp = rest * 2n > unit || (rest * 2n === unit && (below / unit) % 2n !== 0n);
  return isUp ? below + unit : below;
}

function absolute(value: Value): Value {
  if (!isNumeric(value)) throw new TemplateError(`bad operand type for abs(): '${typeName(value)}'`);
  const number = numberOf(value);
  return number < 0 ? -number : typeof number === 'number' ? Math.abs(number) : number;
}

function items(value: Value): Value {
  return new Stream(
    (function* () {
      if (value instanceof Undefined) return;
      if (!(value instanceof Dict)) throw new TemplateError('Can only get item pairs from a mapping.');
      yield* new DictView('items', value);
    })(),
  );
}

function fallback(value: Value, [replacement = '', alsoFalse]: readonly (Value | undefined)[]): Value {
  return value instanceof Undefined || (isSet(alsoFalse) && !isTrue(value)) ? replacement : value;
}

const length: Filter = filter('', (value) => BigInt(lengthOf(value)));
const defaultFilter: Filter = filter('default_value? boolean?', (value, ...args) => fallback(value, args));

export const valueFilters: Readonly<Record<string, Filter>> = byName({
  abs: filter('', absolute),
  attr: filter('name', (value, name) => onlyAttributeOf(value, print(name!))),
  batch: filter('linecount fill_with?', (value, size, fill) => batch(value, size!, fill)),
  count: length,
  d: defaultFilter,
  default: defaultFilter,
  dictsort: filter('case_sensitive? by? reverse?', (value, ...args) => dictSort(value, args)),
  first: filter('', first),
  float: filter('default?', toFloat),
  groupby: filter('attribute default? case_sensitive?', (value, ...args) => groupBy(value, args)),
  int: filter('default? base?', toInt),
  items: filter('', items),
  join: filter('d? attribute?', join),
  last: filter('', last),
  length,
  list: filter('', listOf),
  max: filter('case_sensitive? attribute?', (value, ...args) => extreme(value, args, true)),
  min: filter('case_sensitive? attribute?', (value, ...args) => extreme(value, args, false)),
  reverse: filter('', reverse),
  round: filter('precision? method?', round),
  slice: filter('slices fill_with?', (value, slices, fill) => slice(value, slices!, fill)),
  sort: filter('reverse? case_sensitive? attribute?', (value, ...args) => sort(value, args)),
  sum: filter('attribute? start?', sum),
  unique: filter('case_sensitive? attribute?', (value, ...args) => unique(value, args)),
});

/** Filters that apply another filter or a test to each item, when the item is asked for. */
export function lazyFilters(library: Library): Readonly<Record<string, Filter>> {
  const select =
    (isWanted: boolean, hasAttribute: boolean): Filter =>
    (value, args) => {
      return new Stream(
        (function* () {
          if (!isTrue(value)) return;
          const [isSelected, read] = selection(library, args, hasAttribute);
          for (const item of iterate(value)) if (isSelected(read(item)) === isWanted) yield item;
        })(),
      );
    };
  return {
    map: (value, args) =>
      new Stream(
        (function* () {
          if (!isTrue(value)) return;
          const apply = mapping(library, args);
          for (const item of iterate(value)) yield apply(item);
        })(),
      ),
    select: select(true, false),
    reject: select(false, false),
    selectattr: select(true, true),
    rejectattr: select(false, true),
  };
}

function mapping(library: Library, { positional, named }: Arguments): Getter {
  const [name, ...rest] = positional;
  if (name === undefined && named.has('attribute')) {
    const unknown = [...named.keys()].find((key) => key !== 'attribute' && key !== 'default');
    if (unknown !== undefined) throw new TemplateError(`Unexpected keyword argument '${unknown}'`);
    return getter(named.get('attribute'), named.get('default'));
  }
  if (name === undefined) throw new TemplateError('map requires a filter argument');
  const apply = library.filter(print(name));
  if (apply === undefined) throw new TemplateError(`No filter named '${print(name)}'.`);
  return (item) => apply(item, { positional: rest, named });
}

function selection(
  library: Library,
  { positional, named }: Arguments,
  hasAttribute: boolean,
): [(item: Value) => boolean, Getter] {
  if (hasAttribute && positional.length === 0) throw new TemplateError('Missing parameter for attribute name');
  const read = hasAttribute ? getter(positional[0]) : (item: Value) => item;
  const [name, ...rest] = positional.slice(hasAttribute ? 1 : 0);
  if (name === undefined) return [isTrue, read];
  const test = library.test(print(name));
  if (test === undefined) throw new TemplateError(`No test named '${print(name)}'.`);
  return [(item) => test(item, { positional: rest, named }), read];
}
