import { TemplateError } from './errors.ts';
import { charge } from './meter.ts';

/**
 * The values of templates, which are Python's: an int is a bigint and a float is a number, so `1` and `1.0` differ and no digit is
 * lost. A list is an array. Templates cannot change lists and dicts, as in Jinja's sandbox.
 */
export type Value =
  | null
  | boolean
  | bigint
  | number
  | string
  | readonly Value[]
  | Tuple
  | Dict
  | DictView
  | Range
  | Stream
  | Markup
  | Undefined
  | Thing;

export class Tuple {
  readonly items: readonly Value[];

  constructor(items: readonly Value[]) {
    this.items = items;
  }
}

/** A group of the filter `groupby`: a tuple whose items have names too. */
export class Group extends Tuple {}

export class Range {
  readonly start: bigint;
  readonly stop: bigint;
  readonly step: bigint;
  readonly length: number;

  constructor(start: bigint, stop: bigint, step: bigint) {
    this.start = start;
    this.stop = stop;
    this.step = step;
    const distance = step > 0n ? stop - start : start - stop;
    const stride = step > 0n ? step : -step;
    this.length = distance <= 0n ? 0 : Number((distance + stride - 1n) / stride);
  }

  at(index: number): bigint {
    return this.start + BigInt(index) * this.step;
  }
}

/** Values that are made when they are asked for, once: a Python generator or iterator. */
export class Stream {
  readonly typeName: string;
  readonly #iterator: Iterator<Value, unknown, undefined>;

  constructor(values: Iterable<Value>, typeName = 'generator') {
    this.typeName = typeName;
    this.#iterator = values[Symbol.iterator]();
  }

  [Symbol.iterator](): Iterator<Value> {
    return { next: () => this.#iterator.next() as IteratorResult<Value> };
  }
}

/** A text that is safe in HTML: the result of the filter `escape`. */
export class Markup {
  readonly text: string;

  constructor(text: string) {
    this.text = text;
  }
}

/** What a missing name or field is. It prints as nothing, is an empty list, and fails in most operations. */
export class Undefined {
  readonly reason: string;

  constructor(reason: string) {
    this.reason = reason;
  }

  fail(): never {
    throw new TemplateError(this.reason);
  }
}

export interface Arguments {
  readonly positional: readonly Value[];
  readonly named: ReadonlyMap<string, Value>;
}

/** An object with attributes, which templates may be able to call: functions, macros, `loop`, namespaces. */
export abstract class Thing {
  abstract readonly typeName: string;

  attribute(_name: string): Value | undefined {
    return undefined;
  }

  call(_args: Arguments): Value {
    throw new TemplateError(`'${this.typeName}' object is not callable`);
  }

  get isCallable(): boolean {
    return false;
  }

  toString(): string {
    return `<${this.typeName} object>`;
  }
}

export class Callable extends Thing {
  readonly typeName: string = 'function';
  readonly name: string;
  readonly #run: (args: Arguments) => Value;

  constructor(name: string, run: (args: Arguments) => Value) {
    super();
    this.name = name;
    this.#run = run;
  }

  override get isCallable(): boolean {
    return true;
  }

  override call(args: Arguments): Value {
    return this.#run(args);
  }

  override toString(): string {
    return `<function ${this.name}>`;
  }
}

export class Namespace extends Thing {
  readonly typeName = 'Namespace';
  readonly values: Map<string, Value>;

  constructor(values: Map<string, Value>) {
    super();
    checkNames(values.keys());
    this.values = values;
  }

  override attribute(name: string): Value | undefined {
    return this.values.get(name);
  }

  set(name: string, value: Value): void {
    checkNames([name]);
    this.values.set(name, value);
  }
}

function checkNames(names: Iterable<string>): void {
  for (const name of names) {
    if (name.startsWith('_'))
      throw new TemplateError(`a namespace cannot have '${name}': the name begins with an underscore`);
  }
}

type Key = null | bigint | number | string | Undefined;

/** Python's dict: keys that are equal are one key, and the order is that of insertion. */
export class Dict {
  readonly #entries = new Map<Key, readonly [Value, Value]>();

  constructor(entries: Iterable<readonly [Value, Value]> = []) {
    for (const [key, value] of entries) this.set(key, value);
  }

  /** While the dict is made: the values of templates never change. */
  set(key: Value, value: Value): this {
    const hashed = hashOf(key);
    const before = this.#entries.get(hashed);
    this.#entries.set(hashed, [before === undefined ? key : before[0], value]);
    return this;
  }

  /** @throws TemplateError if the key can be no key of a dict. */
  get(key: Value): Value | undefined {
    return this.#entries.get(hashOf(key))?.[1];
  }

  has(key: Value): boolean {
    return this.#entries.has(hashOf(key));
  }

  get size(): number {
    return this.#entries.size;
  }

  *keys(): Iterable<Value> {
    for (const [key] of this.#entries.values()) yield key;
  }

  *values(): Iterable<Value> {
    for (const [, value] of this.#entries.values()) yield value;
  }

  entries(): Iterable<readonly [Value, Value]> {
    return this.#entries.values();
  }
}

export class DictView {
  readonly kind: 'keys' | 'values' | 'items';
  readonly dict: Dict;

  constructor(kind: DictView['kind'], dict: Dict) {
    this.kind = kind;
    this.dict = dict;
  }

  *[Symbol.iterator](): Iterator<Value> {
    if (this.kind === 'keys') yield* this.dict.keys();
    else if (this.kind === 'values') yield* this.dict.values();
    else for (const entry of this.dict.entries()) yield new Tuple(entry);
  }
}

/** Equal for keys that are one key: 1, 1.0 and true. A text that begins with NUL gets another, for the keys of tuples. */
function hashOf(key: Value): Key {
  if (typeof key === 'string') {
    charge(key.length / 16);
    return key.startsWith('\0') ? `\0s${key}` : key;
  }
  if (typeof key === 'boolean') return key ? 1n : 0n;
  if (typeof key === 'number') return Number.isInteger(key) ? BigInt(key) : key;
  if (key === null || typeof key === 'bigint') return key;
  if (key instanceof Undefined) return undefinedKey;
  if (key instanceof Markup) return hashOf(key.text);
  if (key instanceof Tuple) {
    const parts = key.items.map((item) => describeKey(hashOf(item)));
    charge(parts.reduce((sum, part) => sum + part.length, 1));
    return `\0t${parts.join('')}`;
  }
  throw new TemplateError(`unhashable type: '${typeName(key)}'`);
}

const undefinedKey = new Undefined('');

/** With its length, so that different keys never join to the same text. */
function describeKey(key: Key): string {
  const text = key === undefinedKey ? '' : String(key);
  return `${key === null ? 'null' : typeof key}:${text.length}:${text}`;
}

/** The value, or another one if it is missing. `??` would replace None too. */
export const orElse = (value: Value | undefined, other: () => Value): Value => (value === undefined ? other() : value);

/** Python's name of the type. */
export function typeName(value: Value): string {
  if (value === null) return 'NoneType';
  if (typeof value === 'boolean') return 'bool';
  if (typeof value === 'bigint') return 'int';
  if (typeof value === 'number') return 'float';
  if (typeof value === 'string') return 'str';
  if (value instanceof Tuple) return 'tuple';
  if (value instanceof Dict) return 'dict';
  if (value instanceof DictView) return `dict_${value.kind}`;
  if (value instanceof Range) return 'range';
  if (value instanceof Markup) return 'Markup';
  if (value instanceof Undefined) return 'Undefined';
  if (value instanceof Stream || value instanceof Thing) return value.typeName;
  return 'list';
}

export const isList = (value: Value): value is readonly Value[] => Array.isArray(value);
export const isText = (value: Value): value is string | Markup => typeof value === 'string' || value instanceof Markup;
export const textOf = (value: string | Markup): string => (typeof value === 'string' ? value : value.text);

/** The bool of a value. */
export function isTrue(value: Value): boolean {
  if (typeof value === 'string') return value !== '';
  if (typeof value === 'boolean') return value;
  if (value === null || value instanceof Undefined) return false;
  if (typeof value === 'bigint') return value !== 0n;
  if (typeof value === 'number') return value !== 0;
  return value instanceof Stream || value instanceof Thing || lengthOf(value) !== 0;
}

/** Python's `len`. */
export function lengthOf(value: Value): number {
  if (typeof value === 'string') return characterCount(value);
  if (value instanceof Markup) return characterCount(value.text);
  if (isList(value) || value instanceof Range) return value.length;
  if (value instanceof Tuple) return value.items.length;
  if (value instanceof Dict) return value.size;
  if (value instanceof DictView) return value.dict.size;
  if (value instanceof Undefined) return 0;
  throw new TemplateError(`object of type '${typeName(value)}' has no len()`);
}

/** A text's characters are code points, as in Python. */
export function characterCount(text: string): number {
  charge(text.length / 64);
  if (!surrogate.test(text)) return text.length;
  let count = 0;
  for (const _ of text) count++;
  return count;
}

/** A list of the characters. */
export function lettersOf(text: string): string[] {
  charge(text.length);
  return [...text];
}

/** Whether positions in code points and in JavaScript's units differ. */
export const hasWideCharacters = (text: string): boolean => surrogate.test(text);
const surrogate = /[\ud800-\udbff]/;

/** Python's `iter`. Each step is charged. */
export function* iterate(value: Value): Generator<Value, void, undefined> {
  for (const item of iterable(value)) {
    charge(1);
    yield item;
  }
}

/** @throws TemplateError if the value is not a list, text, dict, ... */
export function iterable(value: Value): Iterable<Value> {
  if (isList(value)) return value;
  if (value instanceof Tuple) return value.items;
  if (value instanceof Dict) return value.keys();
  if (typeof value === 'string') return value;
  if (value instanceof Markup) return value.text;
  if (value instanceof Stream || value instanceof DictView) return value;
  if (value instanceof Range) return numbersOf(value);
  if (value instanceof Undefined) return [];
  throw new TemplateError(`'${typeName(value)}' object is not iterable`);
}

function* numbersOf(range: Range): Iterable<Value> {
  for (let i = 0; i < range.length; i++) yield range.at(i);
}

export function listOf(value: Value): Value[] {
  const items: Value[] = [];
  for (const item of iterable(value)) {
    charge(1);
    items.push(item);
  }
  return items;
}
