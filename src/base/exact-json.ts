import { assert } from './assert.ts';

/**
 * Reads and writes JSON without loss. `JSON.parse` rounds numbers to doubles, forgets how they were written (`1.0`), and
 * moves names such as "10" to the front. Here, a number that JavaScript would write in another way is an `ExactNumber`,
 * and `namesOf` gives the names of an object in the order of the text. All other values are those of `JSON.parse`.
 */
export type ExactJson = null | boolean | number | string | ExactNumber | readonly ExactJson[] | ExactObject;
export interface ExactObject {
  readonly [name: string]: ExactJson;
}

/** A number of JSON, as it was written. In arithmetic and in `JSON.stringify` it is the nearest double. */
export class ExactNumber {
  readonly text: string;

  constructor(text: string) {
    this.text = text;
  }

  valueOf(): number {
    return Number(this.text);
  }

  toString(): string {
    return this.text;
  }

  toJSON(): number {
    return Number(this.text);
  }
}

/** How much a text may have. Reading takes less than a second for texts of several MiB within these limits. */
export interface JsonLimits {
  /** Nested lists and objects, at most 1,000. */
  readonly levels: number;
  /** Different names. */
  readonly fieldNames: number;
  /** Objects and lists. */
  readonly objects: number;
  /** Strings and names. */
  readonly strings: number;
  /** Numbers that become an `ExactNumber`, which is an object. Absent: any number. */
  readonly exactNumbers?: number;
}

/** A body of 100,000 messages with `role` and `content` is within these limits. */
export const jsonLimits: JsonLimits = {
  levels: 64,
  fieldNames: 4096,
  objects: 2 ** 18,
  strings: 2 ** 19,
  exactNumbers: 2 ** 18,
};

/** Characters of a number. Longer ones are refused, because arithmetic with all their digits could take seconds. */
const numberLengthMax = 1000;

/** The text has more of something than a limit allows. It may not be JSON behind `position`. */
export class JsonLimitError extends Error {
  readonly limit: number;
  /** In the plural: "nested levels". */
  readonly what: string;
  readonly position: number;

  constructor(limit: number, what: string, position: number) {
    super(`more than ${limit} ${what} at position ${position}`);
    this.limit = limit;
    this.what = what;
    this.position = position;
  }
}

/**
 * Accepts the same texts as `JSON.parse`, up to the limits. The values are new, and nothing else refers to them.
 * @throws SyntaxError with the position, and without a part of the text, which can be a prompt.
 * @throws JsonLimitError
 */
export function readExactJson(text: string, limits: JsonLimits = jsonLimits): ExactJson {
  assert(limits.levels <= 1000, 'the reader calls itself for each level');
  return new Reader(text, limits).read();
}

/** The names of an object from `readExactJson`, in the order of the text; of other objects, as `Object.keys`. */
export const namesOf = (object: object): readonly string[] => orders.get(object) ?? Object.keys(object);

/**
 * JSON of a value from `readExactJson`, or of other JSON values: equal to `JSON.stringify(value, null, indent)` but exact.
 * @throws TypeError for a function, a symbol or a bigint
 */
export function writeExactJson(value: unknown, indent = 0): string {
  return write(value, indent === 0 ? undefined : ' '.repeat(indent), '\n');
}

/** A copy in which each number is the nearest double. The names keep their order. */
export function plainJson(value: ExactJson): unknown {
  if (value instanceof ExactNumber) return value.valueOf();
  if (Array.isArray(value)) return (value as readonly ExactJson[]).map(plainJson);
  if (typeof value !== 'object' || value === null) return value;
  const copy = {};
  for (const [name, field] of Object.entries(value)) define(copy, name, plainJson(field));
  const order = orders.get(value);
  if (order !== undefined) orders.set(copy, order);
  return copy;
}

/** The order of the names of objects that JavaScript orders in another way. */
const orders = new WeakMap<object, readonly string[]>();

/** Names that JavaScript moves to the front, in ascending order. */
const arrayIndex = /^(?:0|[1-9]\d{0,9})$/;
const numberPattern = /-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?/y;
const spacePattern = /[ \t\n\r]*/y;

class Reader {
  readonly #text: string;
  readonly #limits: JsonLimits;
  readonly #names = new Set<string>();
  #at = 0;
  #level = 0;
  #objects = 0;
  #strings = 0;
  #exactNumbers = 0;

  constructor(text: string, limits: JsonLimits) {
    this.#text = text;
    this.#limits = limits;
  }

  read(): ExactJson {
    const value = this.#value();
    if (this.#next() !== '') throw this.#error();
    return value;
  }

  #error(): SyntaxError {
    const isEnd = this.#at >= this.#text.length;
    return new SyntaxError(isEnd ? 'Unexpected end of JSON input' : `Unexpected character at position ${this.#at}`);
  }

  #over(limit: number, what: string): JsonLimitError {
    return new JsonLimitError(limit, what, this.#at);
  }

  /** The next character that is no white space; empty at the end. */
  #next(): string {
    const letter = this.#text.charAt(this.#at);
    if (letter > ' ') return letter;
    spacePattern.lastIndex = this.#at;
    spacePattern.test(this.#text);
    this.#at = spacePattern.lastIndex;
    return this.#text.charAt(this.#at);
  }

  #value(): ExactJson {
    switch (this.#next()) {
      case '{':
        return this.#object();
      case '[':
        return this.#list();
      case '"':
        return this.#string();
      case 't':
        return this.#word('true', true);
      case 'f':
        return this.#word('false', false);
      case 'n':
        return this.#word('null', null);
      default:
        return this.#number();
    }
  }

  #word<T>(word: string, value: T): T {
    for (const letter of word) {
      if (this.#text.charAt(this.#at) !== letter) throw this.#error();
      this.#at++;
    }
    return value;
  }

  #number(): number | ExactNumber {
    numberPattern.lastIndex = this.#at;
    if (!numberPattern.test(this.#text)) throw this.#error();
    const end = numberPattern.lastIndex;
    if (end - this.#at > numberLengthMax) throw this.#over(numberLengthMax, 'characters of a number');
    const text = this.#text.slice(this.#at, end);
    this.#at = end;
    const value = Number(text);
    // JavaScript writes other large integers and floats with the same digits, such as 1152921504606847000 and 1e+22.
    if (String(value) === text && (Number.isSafeInteger(value) || !Number.isInteger(value))) return value;
    const { exactNumbers = Infinity } = this.#limits;
    if (++this.#exactNumbers > exactNumbers)
      throw this.#over(exactNumbers, 'numbers that are not in the shortest form');
    return new ExactNumber(text);
  }

  #string(): string {
    if (++this.#strings > this.#limits.strings) throw this.#over(this.#limits.strings, 'strings');
    const start = this.#at;
    let end = start + 1;
    let isPlain = true;
    for (; ; end++) {
      const code = this.#text.charCodeAt(end);
      if (code === 0x22) break;
      if (code === 0x5c) {
        isPlain = false;
        end++;
      }
      if (!(code >= 0x20)) {
        this.#at = end;
        throw this.#error();
      }
    }
    this.#at = end + 1;
    return isPlain ? this.#text.slice(start + 1, end) : this.#unescaped(start, end + 1);
  }

  #unescaped(start: number, end: number): string {
    try {
      return JSON.parse(this.#text.slice(start, end)) as string;
    } catch {
      this.#at = start;
      throw this.#error();
    }
  }

  #enter(): void {
    const { levels, objects } = this.#limits;
    if (++this.#level > levels) throw this.#over(levels, 'nested levels');
    if (++this.#objects > objects) throw this.#over(objects, 'objects and lists');
    this.#at++;
  }

  /** Whether another element follows. Reads the comma or the closing bracket. */
  #hasMore(close: string): boolean {
    const letter = this.#next();
    if (letter !== ',' && letter !== close) throw this.#error();
    this.#at++;
    if (letter === close) this.#level--;
    return letter === ',';
  }

  #isEmpty(close: string): boolean {
    return this.#next() === close && !this.#hasMore(close);
  }

  #list(): readonly ExactJson[] {
    this.#enter();
    const list: ExactJson[] = [];
    if (this.#isEmpty(']')) return list;
    do list.push(this.#value());
    while (this.#hasMore(']'));
    return list;
  }

  #object(): ExactObject {
    this.#enter();
    const object: ExactObject = {};
    if (this.#isEmpty('}')) return object;
    const names = new Set<string>();
    let isMoved = false;
    do {
      if (this.#next() !== '"') throw this.#error();
      const name = this.#string();
      this.#names.add(name);
      if (this.#names.size > this.#limits.fieldNames)
        throw this.#over(this.#limits.fieldNames, 'different field names');
      if (this.#next() !== ':') throw this.#error();
      this.#at++;
      define(object, name, this.#value());
      names.add(name);
      isMoved ||= arrayIndex.test(name);
    } while (this.#hasMore('}'));
    if (isMoved) orders.set(object, [...names]);
    return object;
  }
}

/** As `JSON.parse`: also `__proto__` becomes a field. */
function define(object: object, name: string, value: unknown): void {
  if (name !== '__proto__') (object as Record<string, unknown>)[name] = value;
  else Object.defineProperty(object, name, { value, enumerable: true, writable: true, configurable: true });
}

function write(value: unknown, indent: string | undefined, line: string): string {
  if (value instanceof ExactNumber) return value.text;
  if (value === undefined) return 'null';
  if (typeof value === 'function' || typeof value === 'symbol') throw new TypeError(`A ${typeof value} is not JSON`);
  if (typeof value !== 'object' || value === null) return JSON.stringify(value);
  if ('toJSON' in value && typeof value.toJSON === 'function') return write(value.toJSON(), indent, line);
  const inner = indent === undefined ? '' : line + indent;
  const outer = indent === undefined ? '' : line;
  if (Array.isArray(value)) {
    if (value.length === 0) return '[]';
    return `[${inner}${value.map((item) => write(item, indent, inner)).join(`,${inner}`)}${outer}]`;
  }
  const fields = namesOf(value)
    .map((name) => [name, (value as Record<string, unknown>)[name]] as const)
    .filter(([, field]) => field !== undefined)
    .map(([name, field]) => `${JSON.stringify(name)}:${indent === undefined ? '' : ' '}${write(field, indent, inner)}`);
  return fields.length === 0 ? '{}' : `{${inner}${fields.join(`,${inner}`)}${outer}}`;
}
