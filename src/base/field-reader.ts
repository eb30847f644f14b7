import { byEntries } from './by-name.ts';
import { describeValue, shorten } from './describe-value.ts';
import { type ExactJson, ExactNumber, plainJson } from './exact-json.ts';
import { isJsonObject, type JsonObject } from './json.ts';
import { didYouMean, nearestName } from './nearest-name.ts';

/** The longest name that a request gives to something, such as its cache salt, in UTF-16 units. */
export const nameLengthMax = 1024;

export interface Range {
  readonly min?: number;
  readonly max?: number;
  /** Exclusive lower bound. */
  readonly above?: number;
}

/** What is wrong with a field. Each API has a function that turns it into an error of its catalogue. */
export type FieldFault = {
  /** The field with its path, as the caller wrote it. Empty: the whole object. */
  readonly parameter: string;
  /** The value, as text. */
  readonly actual: string;
} & (
  | { readonly kind: 'invalid'; readonly expected: string; readonly hint: string }
  | { readonly kind: 'missing'; readonly expected: string }
  /** A field that other servers have. */
  | { readonly kind: 'unsupported'; readonly detail: string }
  | {
      readonly kind: 'unknown';
      /** The known fields of the object. */
      readonly known: readonly string[];
      /** The known name that is most like it, without its path, which is `path`. */
      readonly nearest: string | undefined;
      readonly path: string;
    }
);

/** What a reader accepts in a field, as JSON Schema says it. `required` is of the object around the field. */
export interface FieldShape {
  readonly type?: 'boolean' | 'integer' | 'number' | 'string' | 'object' | 'array';
  readonly minimum?: number;
  readonly maximum?: number;
  readonly exclusiveMinimum?: number;
  readonly minLength?: number;
  readonly maxLength?: number;
  readonly minItems?: number;
  readonly maxItems?: number;
  readonly enum?: readonly string[];
  readonly required?: true;
  /** Of a list. */
  readonly items?: FieldShape;
  /** The value has one of these shapes. */
  readonly anyOf?: readonly FieldShape[];
}

/** Shapes of values that have several, or whose reader is not this one. */
export const shapes = {
  text: { type: 'string' },
  list: { type: 'array' },
  object: { type: 'object' },
  boolean: { type: 'boolean' },
  integer: { type: 'integer' },
  texts: { type: 'array', items: { type: 'string' } },
  integers: { type: 'array', items: { type: 'integer' } },
} as const satisfies Readonly<Record<string, FieldShape>>;

/** Is told of each field that a reader looks for, with its path: what is known about the fields of a request can be described. */
export type FieldObserver = (path: string, shape: FieldShape) => void;

/** Those of the objects inside too. */
export interface FieldWatchers {
  /** Is told of fields that were not read, instead of an error. */
  readonly onUnknown?: ((parameter: string) => void) | undefined;
  readonly observer?: FieldObserver | undefined;
}

export type FaultToError = (fault: FieldFault) => Error;

/**
 * Reads the fields of one object, each with its type and range, and at the end refuses fields that were not read. So the code
 * that reads the fields is the list of known fields. `null` counts as absent, because OpenAI's clients send it. Every error
 * names the field as the caller wrote it.
 */
export class FieldReader {
  readonly #fields: Readonly<Record<string, unknown>>;
  readonly #toError: FaultToError;
  readonly #path: string;
  readonly #onUnknown: ((parameter: string) => void) | undefined;
  readonly #observer: FieldObserver | undefined;
  readonly #known = new Set<string>();
  /** Accepted, but not for use: they are in no list of known fields. */
  readonly #others = new Set<string>();

  /**
   * `path` is the prefix of field names in errors, for objects inside of another one: `stream_options.`.
   */
  constructor(value: unknown, toError: FaultToError, path = '', { onUnknown, observer }: FieldWatchers = {}) {
    if (!isJsonObject(value)) {
      const parameter = withoutDot(path);
      throw toError({ kind: 'invalid', parameter, expected: 'an object', actual: describeValue(value), hint: '' });
    }
    this.#fields = value;
    this.#toError = toError;
    this.#path = path;
    this.#onUnknown = onUnknown;
    this.#observer = observer;
  }

  /** Tells the observer about fields that another reader checks. `nameOf`: their names here. */
  observed(nameOf: (name: string) => string): FieldObserver | undefined {
    const observer = this.#observer;
    return observer && ((path, shape) => observer(this.#path + nameOf(path), shape));
  }

  /** The name of this object in errors: `tools[0]`. */
  get path(): string {
    return withoutDot(this.#path);
  }

  /**
   * The unchecked value; undefined if it is absent or null. It is a number where JSON has one, also in lists. Inside of objects,
   * numbers keep their digits (`exact-json.ts`): `plain` gives them as numbers. `forms`: what the caller accepts.
   */
  raw(name: string, ...forms: readonly FieldShape[]): unknown {
    return withPlainNumbers(this.exact(name, ...forms));
  }

  /** The unchecked value with all digits of numbers. */
  exact(name: string, ...forms: readonly FieldShape[]): unknown {
    this.#known.add(name);
    this.#observe(name, forms.length > 1 ? { anyOf: forms } : (forms[0] ?? {}));
    return this.#value(name);
  }

  /** The unchecked value without exact numbers at any depth. Another reader checks it, and tells the observer. */
  plain(name: string): unknown {
    this.#known.add(name);
    return plainJson(this.#value(name) as ExactJson);
  }

  boolean(name: string): boolean | undefined {
    this.#observe(name, { type: 'boolean' });
    return this.#checked(name, 'true or false', (value) => typeof value === 'boolean');
  }

  number(name: string, range: Range = {}): number | undefined {
    this.#observe(name, { type: 'number', ...shapeOf(range, 'minimum', 'maximum') });
    return this.#checked(name, `a number${describeRange(range)}`, (value) => isNumberIn(value, range));
  }

  integer(name: string, range: Range = {}): number | undefined {
    this.#observe(name, { type: 'integer', ...shapeOf(range, 'minimum', 'maximum') });
    const bounded = { max: Number.MAX_SAFE_INTEGER, ...range };
    const value = this.raw(name);
    if (value === undefined || (isNumberIn(value, bounded) && Number.isInteger(value))) return value;
    // Only larger numbers need to know the largest integer.
    throw this.invalid(name, `an integer${describeRange((value as number) > bounded.max ? bounded : range)}`);
  }

  /** `lengths`: in UTF-16 units. */
  string(name: string, { min = 0, max = Number.POSITIVE_INFINITY }: Omit<Range, 'above'> = {}): string | undefined {
    this.#observe(name, { type: 'string', ...shapeOf({ min, max }, 'minLength', 'maxLength') });
    const value = this.raw(name);
    if (value === undefined) return undefined;
    const text = this.wellFormed(name, value);
    if (text.length < min) throw this.invalid(name, 'a non-empty string');
    if (text.length > max)
      throw this.invalid(name, `a string of at most ${max} characters`, `${text.length} characters`);
    return text;
  }

  /** A string that names something: it is short, because requests keep it and logs, metrics and caches compare it. */
  name(name: string): string | undefined {
    return this.withoutNul(name, this.string(name, { max: nameLengthMax }));
  }

  /** A string that is not empty. */
  text(name: string): string | undefined {
    return this.withoutNul(name, this.string(name, { min: 1 }));
  }

  /** A path, or the address of something. The system has no paths with NUL. */
  pathText(name: string): string | undefined {
    return this.withoutNul(name, this.string(name, { min: 1, max: 4 * nameLengthMax }));
  }

  withoutNul(name: string, value: string | undefined): string | undefined {
    if (value?.includes('\0') === true) throw this.invalid(name, 'a text without NUL', 'a text with NUL');
    return value;
  }

  requiredChoice<T extends string>(name: string, choices: readonly T[]): T {
    return this.required(name, this.choice(name, choices), oneOf(choices));
  }

  /** One of these strings. */
  choice<T extends string>(name: string, choices: readonly T[]): T | undefined {
    this.#observe(name, { type: 'string', enum: choices });
    const value = this.raw(name);
    if (value === undefined || choices.includes(value as T)) return value as T | undefined;
    throw this.invalid(name, oneOf(choices), undefined, typeof value === 'string' ? didYouMean(value, choices) : '');
  }

  /** An object that is not read here. */
  json(name: string, expected = 'an object'): JsonObject | undefined {
    this.#observe(name, { type: 'object' });
    return this.#checked(name, expected, isJsonObject);
  }

  /** A value that is not larger than `lengthMax` as JSON: for objects that the request keeps and that this server does not read. */
  small(name: string, lengthMax: number): unknown {
    const value = this.raw(name);
    if (value === undefined) return value;
    // The length of a string is known without its JSON.
    const { length } = typeof value === 'string' ? value : JSON.stringify(value);
    if (length <= lengthMax) return value;
    throw this.invalid(name, `at most ${lengthMax} characters of JSON`, `${length} characters`);
  }

  /** A string of well-formed Unicode: tokenizers would read a lone surrogate in different ways. */
  wellFormed(name: string, value: unknown): string {
    if (typeof value !== 'string') throw this.invalid(name, 'a string', describeValue(value));
    if (/\p{Surrogate}/u.test(value)) throw this.invalid(name, 'well-formed Unicode', 'a lone surrogate');
    return value;
  }

  /** A list with `read` applied to each item. The name of an item is `name[i]`. */
  list<T>(name: string, read: (item: unknown, itemName: string) => T, lengths: Range = {}): T[] | undefined {
    this.#observe(name, { type: 'array', ...shapeOf(lengths, 'minItems', 'maxItems') });
    const value = this.raw(name);
    if (value === undefined) return undefined;
    if (!Array.isArray(value)) throw this.invalid(name, 'a list');
    if (!isWithin(value.length, lengths)) {
      throw this.invalid(name, `a list with a length${describeRange(lengths)}`, `${value.length} items`);
    }
    return value.map((item: unknown, i) => read(item, `${name}[${i}]`));
  }

  object(name: string): FieldReader | undefined {
    this.#observe(name, { type: 'object' });
    const value = this.raw(name);
    return value === undefined ? undefined : this.inside(name, value);
  }

  /** A reader of each object of a list. */
  objects<T>(name: string, read: (item: FieldReader) => T, lengths?: Range): T[] | undefined {
    return this.list(name, (item, itemName) => read(this.inside(itemName, item)), lengths);
  }

  /** The reader of an object that is a part of this one. */
  inside(name: string, value: unknown): FieldReader {
    return new FieldReader(value, this.#toError, `${this.#path}${name}.`, {
      onUnknown: this.#onUnknown,
      observer: this.#observer,
    });
  }

  /** The name of a field with its path. */
  pathOf(name: string): string {
    return this.#path + name;
  }

  required<T>(name: string, value: T | undefined, expected: string): T {
    this.#observe(name, { required: true });
    if (value !== undefined) return value;
    throw this.#toError({ kind: 'missing', parameter: this.#path + name, expected, actual: describeValue(undefined) });
  }

  /** Accepts fields that others know and that have no effect here. Returns those that are set. */
  ignore(names: readonly string[]): string[] {
    for (const name of names) {
      this.#others.add(name);
      this.#observe(name, {});
    }
    return names.filter((name) => this.#value(name) !== undefined);
  }

  /** Refuses a known field that is not supported, except for values that request nothing (`isNeutral`). */
  refuse(name: string, isNeutral: (value: unknown) => boolean, detail = ''): void {
    this.#others.add(name);
    const value = withPlainNumbers(this.#value(name));
    if (value === undefined || isNeutral(value)) return;
    const parameter = this.#path + name;
    throw this.#toError({ kind: 'unsupported', parameter, detail, actual: describeValue(value) });
  }

  /** The fields that were not read, for a reader of its own. */
  rest(): JsonObject {
    const others = Object.entries(this.#fields).filter(([name]) => !this.#known.has(name));
    this.ignore(others.map(([name]) => name));
    return byEntries(others) as JsonObject;
  }

  /** `actual`: a text for the value; by default that of the field. `hint`: a sentence with a space before it. */
  invalid(name: string, expected: string, actual = describeValue(this.#value(name)), hint = ''): Error {
    return this.#toError({ kind: 'invalid', parameter: this.#path + name, expected, actual, hint });
  }

  /** The object as a whole is wrong. */
  wrong(expected: string, actual: string): Error {
    return this.#toError({ kind: 'invalid', parameter: this.path, expected, actual, hint: '' });
  }

  /** Refuses fields that were not read, or returns them if unknown fields are accepted. Call it after the last read. */
  finish(): string[] {
    const unknown: string[] = [];
    for (const name of Object.keys(this.#fields)) {
      if (this.#known.has(name) || this.#others.has(name)) continue;
      if (this.#onUnknown !== undefined) {
        unknown.push(shorten(name));
        this.#onUnknown(this.#path + shorten(name));
        continue;
      }
      throw this.#toError({
        kind: 'unknown',
        parameter: this.#path + shorten(name),
        known: [...this.#known],
        nearest: nearestName(name, [...this.#known, ...this.#others]),
        path: this.#path,
        actual: describeValue(this.#fields[name]),
      });
    }
    return unknown;
  }

  #observe(name: string, shape: FieldShape): void {
    this.#observer?.(this.#path + name, shape);
  }

  #value(name: string): unknown {
    // Instances of a caller's class may inherit fields, but no field is a method of all objects.
    if (!Object.hasOwn(this.#fields, name) && name in Object.prototype) return undefined;
    return this.#fields[name] ?? undefined;
  }

  #checked<T>(name: string, expected: string, isRight: (value: unknown) => value is T): T | undefined {
    const value = this.raw(name);
    if (value === undefined || isRight(value)) return value;
    throw this.invalid(name, expected);
  }
}

type LowerBound = 'minimum' | 'minLength' | 'minItems';
type UpperBound = 'maximum' | 'maxLength' | 'maxItems';

const shapeOf = ({ min, max, above }: Range, lower: LowerBound, upper: UpperBound): FieldShape => ({
  ...(min === undefined || (min === 0 && lower !== 'minimum') ? {} : { [lower]: min }),
  ...(max === undefined || max === Number.POSITIVE_INFINITY ? {} : { [upper]: max }),
  ...(above === undefined ? {} : { exclusiveMinimum: above }),
});

const withoutDot = (path: string): string => path.replace(/\.$/, '');

/** The names of fields in snake_case: vLLM's configurations may be written in camelCase too. `twice`: the error for two spellings. */
export function inSnakeCase(config: object, twice: (name: string) => Error): Record<string, unknown> {
  const fields = new Map<string, unknown>();
  for (const [name, value] of Object.entries(config)) {
    const snake = snakeCase(name);
    if (value === undefined) continue;
    if (fields.has(snake)) throw twice(snake);
    fields.set(snake, value);
  }
  return byEntries(fields);
}

export const snakeCase = (name: string): string => name.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`);

/** Numbers as JavaScript has them. A list without exact numbers is not copied: it may have a million tokens. */
function withPlainNumbers(value: unknown): unknown {
  if (value instanceof ExactNumber) return value.valueOf();
  if (!Array.isArray(value) || !value.some((item) => item instanceof ExactNumber || Array.isArray(item))) return value;
  return value.map(withPlainNumbers);
}

const isNumberIn = (value: unknown, range: Range): value is number =>
  typeof value === 'number' && Number.isFinite(value) && isWithin(value, range);

function isWithin(value: number, { min, max, above }: Range): boolean {
  return (
    (min === undefined || value >= min) && (max === undefined || value <= max) && (above === undefined || value > above)
  );
}

function describeRange({ min, max, above }: Range): string {
  if (above !== undefined) return ` greater than ${above}${max === undefined ? '' : ` and at most ${max}`}`;
  if (min !== undefined && max !== undefined) return ` from ${min} to ${max}`;
  if (min !== undefined) return ` of at least ${min}`;
  return max === undefined ? '' : ` of at most ${max}`;
}

function oneOf(choices: readonly string[]): string {
  return choices.length === 2 ? `"${choices[0]}" or "${choices[1]}"` : `one of ${choices.join(', ')}`;
}

type WithoutUndefined<T> = { [K in keyof T]?: Exclude<T[K], undefined> };

/** Readers return undefined for absent fields, and `exactOptionalPropertyTypes` does not allow such properties. */
export function withoutUndefined<T extends object>(value: T): WithoutUndefined<T> {
  return byEntries(Object.entries(value).filter(([, field]) => field !== undefined)) as WithoutUndefined<T>;
}
