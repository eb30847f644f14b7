import { byName, ownValue } from '../base/by-name.ts';
import { bind, intOf, noArguments, parameters } from './bind.ts';
import { equals } from './compare.ts';
import { TemplateError } from './errors.ts';
import { charge, chargeText } from './meter.ts';
import { quote, represent } from './print.ts';
import { textMethod } from './text-methods.ts';
import {
  Callable,
  Dict,
  DictView,
  Group,
  hasWideCharacters,
  isList,
  isText,
  iterate,
  lettersOf,
  Markup,
  orElse,
  Range,
  Thing,
  Tuple,
  textOf,
  typeName,
  Undefined,
  type Value,
} from './values.ts';

/** `value.name`: attributes come before the fields of a dict. */
export function attributeOf(value: Value, name: string): Value {
  if (value instanceof Undefined) return value.fail();
  const own = ownAttribute(value, name);
  return orElse(own === undefined ? itemIfAny(value, name) : own, () => missing(value, name));
}

/** `value[key]`: the fields of a dict come before attributes. */
export function itemOf(value: Value, key: Value): Value {
  if (value instanceof Undefined) return value.fail();
  const found = itemIfAny(value, key);
  if (found !== undefined) return found;
  return orElse(isText(key) ? ownAttribute(value, textOf(key)) : undefined, () => missing(value, key));
}

/** The filter `attr`: attributes only. */
export function onlyAttributeOf(value: Value, name: string): Value {
  if (value instanceof Undefined) return value.fail();
  return orElse(ownAttribute(value, name), () => missing(value, name));
}

function missing(value: Value, key: Value): Undefined {
  const object = value === null ? 'None' : `${typeName(value)} object`;
  return new Undefined(
    isText(key) ? `'${object}' has no attribute ${quote(textOf(key))}` : `${object} has no element ${represent(key)}`,
  );
}

function itemIfAny(value: Value, key: Value): Value | undefined {
  if (value instanceof Dict) return isHashable(key) ? value.get(key) : undefined;
  if (typeof key !== 'bigint' && typeof key !== 'boolean') return undefined;
  const index = Number(key);
  if (isText(value)) return letterAt(value, index);
  if (value instanceof Range) return within(index, value.length, (at) => value.at(at));
  const items = isList(value) ? value : value instanceof Tuple ? value.items : undefined;
  return items && within(index, items.length, (at) => items[at]);
}

const isHashable = (key: Value): boolean =>
  !isList(key) && !(key instanceof Dict) && !(key instanceof Tuple && !key.items.every(isHashable));

function within<T>(index: number, length: number, at: (index: number) => T): T | undefined {
  const place = index < 0 ? length + index : index;
  return place >= 0 && place < length ? at(place) : undefined;
}

function letterAt(value: string | Markup, index: number): Value | undefined {
  const text = textOf(value);
  charge(text.length / 64);
  const letters = hasWideCharacters(text) ? lettersOf(text) : text;
  const letter = within(index, letters.length, (at) => letters[at]);
  return letter === undefined || typeof value === 'string' ? letter : new Markup(letter);
}

/** Undefined: there is no such attribute. */
function ownAttribute(value: Value, name: string): Value | undefined {
  charge(name.length / 16);
  if (isText(value)) return textAttribute(value, name);
  if (value instanceof Thing) return value.attribute(name);
  const methods = methodsOf(value);
  const run = Object.hasOwn(methods, name) ? methods[name] : undefined;
  if (run !== undefined)
    return new Callable(name, (args) => run(value, bind(name, parameters(signatures[name] ?? ''), args)));
  if (changing.get(typeName(value))?.has(name) === true) return unsafe(value, name);
  return propertyOf(value, name);
}

/** Methods that would change a value, which templates cannot do. */
const changing: ReadonlyMap<string, ReadonlySet<string>> = new Map([
  ['list', new Set(['append', 'clear', 'pop', 'reverse', 'insert', 'sort', 'extend', 'remove'])],
  ['dict', new Set(['clear', 'pop', 'popitem', 'setdefault', 'update'])],
]);

const unsafe = (value: Value, name: string): Undefined =>
  new Undefined(`access to attribute '${name}' of '${typeName(value)}' object is unsafe.`);

function textAttribute(value: string | Markup, name: string): Value | undefined {
  const run = textMethod(name);
  if (run === undefined) return undefined;
  const text = textOf(value);
  return new Callable(name, (args) => {
    chargeText(text.length / 4);
    const result = run(text, args, { attribute: attributeOf, item: itemOf });
    return typeof value === 'string' || typeof result !== 'string' ? result : new Markup(result);
  });
}

type Methods = Readonly<Record<string, (value: Value, args: readonly (Value | undefined)[]) => Value>>;

const signatures: Readonly<Record<string, string>> = byName({
  get: 'key default?',
  index: 'value',
  count: 'value',
  fromkeys: 'keys value?',
});

const sequenceMethods: Methods = {
  index: (value, [sought]) => {
    let index = 0n;
    for (const item of iterate(value)) {
      if (item === sought || equals(item, sought!)) return index;
      index++;
    }
    throw new TemplateError(`${represent(sought!)} is not in ${typeName(value)}`);
  },
  count: (value, [sought]) => {
    let count = 0n;
    for (const item of iterate(value)) if (equals(item, sought!)) count++;
    return count;
  },
};

const asDict = (value: Value): Dict => value as Dict;

const methodTables = {
  dict: {
    get: (value, [key, fallback]) => orElse(asDict(value).get(key!), () => orElse(fallback, () => null)),
    items: (value) => new DictView('items', asDict(value)),
    keys: (value) => new DictView('keys', asDict(value)),
    values: (value) => new DictView('values', asDict(value)),
    copy: (value) => value,
    fromkeys: (_, [keys, value]) => new Dict([...iterate(keys!)].map((key) => [key, value ?? null])),
  },
  list: { ...sequenceMethods, copy: (value) => value },
  sequence: sequenceMethods,
  int: {
    bit_length: (value) => BigInt(value === 0n ? 0 : String((value as bigint).toString(2)).replace('-', '').length),
    is_integer: () => true,
  },
  float: { is_integer: (value) => Number.isInteger(value) },
  none: {},
} satisfies Readonly<Record<string, Methods>>;

function methodsOf(value: Value): Methods {
  if (value instanceof Dict) return methodTables.dict;
  if (isList(value)) return methodTables.list;
  if (value instanceof Tuple || value instanceof Range) return methodTables.sequence;
  if (typeof value === 'bigint') return methodTables.int;
  return typeof value === 'number' ? methodTables.float : methodTables.none;
}

function propertyOf(value: Value, name: string): Value | undefined {
  if (value instanceof Group) return name === 'grouper' ? value.items[0] : name === 'list' ? value.items[1] : undefined;
  if (value instanceof Range && (name === 'start' || name === 'stop' || name === 'step')) return value[name];
  if (typeof value !== 'bigint' && typeof value !== 'number') return undefined;
  if (name === 'real') return value;
  if (name === 'imag') return typeof value === 'bigint' ? 0n : 0;
  return typeof value === 'bigint' ? ownValue({ numerator: value, denominator: 1n }, name) : undefined;
}

/** `value[start:stop:step]`. */
export function sliceOf(value: Value, start: Value, stop: Value, step: Value): Value {
  if (value instanceof Undefined) return value.fail();
  const isSliced = isText(value) || isList(value) || value instanceof Tuple || value instanceof Range;
  if (value instanceof Dict) throw new TemplateError("unhashable type: 'slice'");
  if (!isSliced) throw new TemplateError(`'${typeName(value)}' object is not subscriptable`);
  if (![start, stop, step].every(isIndex)) {
    throw new TemplateError('slice indices must be integers or None or have an __index__ method');
  }
  const stride = step === null ? 1 : intOf(step);
  if (stride === 0) throw new TemplateError('slice step cannot be zero');
  if (value instanceof Range) return slicedRange(value, placesOf(value.length, start, stop, stride));
  if (isText(value)) return slicedText(value, start, stop, stride);
  const items = isList(value) ? value : value.items;
  const picked = pick(items, placesOf(items.length, start, stop, stride));
  return isList(value) ? picked : new Tuple(picked);
}

const isIndex = (value: Value): boolean => value === null || typeof value === 'bigint' || typeof value === 'boolean';

interface Places {
  readonly first: number;
  readonly end: number;
  readonly step: number;
}

function placesOf(length: number, start: Value, stop: Value, step: number): Places {
  const [low, high] = step > 0 ? [0, length] : [-1, length - 1];
  const place = (value: Value, fallback: number): number => {
    if (value === null) return fallback;
    const index = intOf(value);
    return Math.min(high, Math.max(low, index < 0 ? index + length : index));
  };
  const backward = step < 0;
  return { first: place(start, backward ? high : low), end: place(stop, backward ? low : high), step };
}

const countOf = ({ first, end, step }: Places): number => Math.max(0, Math.ceil((end - first) / step));

function pick<T>(items: ArrayLike<T>, places: Places): T[] {
  const count = countOf(places);
  charge(count / 4);
  return Array.from({ length: count }, (_, i) => items[places.first + i * places.step]!);
}

function slicedText(value: string | Markup, start: Value, stop: Value, step: number): Value {
  const text = textOf(value);
  chargeText(text.length);
  const letters = hasWideCharacters(text) ? lettersOf(text) : text;
  const places = placesOf(letters.length, start, stop, step);
  const isPlain = step === 1 && typeof letters === 'string';
  const result = isPlain
    ? letters.slice(places.first, Math.max(places.first, places.end))
    : pick(letters, places).join('');
  return typeof value === 'string' ? result : new Markup(result);
}

function slicedRange(range: Range, places: Places): Range {
  const step = range.step * BigInt(places.step);
  return new Range(range.at(places.first), range.at(places.end), step);
}

/** Calls a value, or fails with the reason why it cannot be called. */
export function callValue(callee: Value, args = noArguments): Value {
  if (callee instanceof Thing && callee.isCallable) return callee.call(args);
  if (callee instanceof Undefined) return callee.fail();
  throw new TemplateError(`'${typeName(callee)}' object is not callable`);
}
