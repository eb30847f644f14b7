import { type ExactJson, ExactNumber, plainJson } from '../base/exact-json.ts';
import { isJsonObject } from '../base/json.ts';
import { nearestName } from '../base/nearest-name.ts';
import { invalidParameter } from '../core/errors.ts';
import { nameLengthMax } from '../core/request.ts';
import { describeValue } from '../core/sampling-read.ts';
import { bodyNotObject, fieldMissing, fieldNotSupported, fieldUnknown } from './server-errors.ts';

/** Of a value without effect, as JSON: more than OpenAI's limits of `metadata`. */
const ignoredLengthMax = 16 * 1024;

export interface Range {
  readonly min?: number;
  readonly max?: number;
  /** Exclusive lower bound. */
  readonly above?: number;
}

/**
 * Reads the fields of one JSON object, each with its type and range, and at the end refuses fields that were not read.
 * So the code that reads the fields is the list of known fields. `null` counts as absent, because OpenAI's clients send
 * it. Every error names the field as the caller wrote it.
 */
export class FieldReader {
  readonly #fields: Readonly<Record<string, unknown>>;
  readonly #path: string;
  readonly #known = new Set<string>();

  /** `path` is the prefix of field names in errors, for objects inside the body: `stream_options.`. */
  constructor(body: unknown, path = '') {
    if (!isObject(body)) {
      if (path === '') throw bodyNotObject({ actual: describeValue(body) });
      throw invalidParameter({
        parameter: path.replace(/\.$/, ''),
        expected: 'an object',
        actual: describeValue(body),
      });
    }
    this.#fields = body;
    this.#path = path;
  }

  /**
   * The unchecked value; undefined if it is absent or null. It is a number where JSON has one, also in lists. Inside of objects,
   * numbers keep their digits (`exact-json.ts`): `plain` gives them as numbers.
   */
  raw(name: string): unknown {
    return withPlainNumbers(this.exact(name));
  }

  /** The unchecked value with all digits of numbers. */
  exact(name: string): unknown {
    this.#known.add(name);
    const value = Object.hasOwn(this.#fields, name) ? this.#fields[name] : undefined;
    return value === null ? undefined : value;
  }

  /** The unchecked value without exact numbers at any depth. */
  plain(name: string): unknown {
    return plainJson(this.exact(name) as ExactJson);
  }

  boolean(name: string): boolean | undefined {
    const value = this.raw(name);
    if (value === undefined || typeof value === 'boolean') return value;
    throw this.invalid(name, 'true or false', describeValue(value));
  }

  number(name: string, range: Range = {}): number | undefined {
    const value = this.raw(name);
    if (value === undefined) return undefined;
    if (typeof value === 'number' && Number.isFinite(value) && isWithin(value, range)) return value;
    throw this.invalid(name, `a number${describeRange(range)}`, describeValue(value));
  }

  integer(name: string, range: Range = {}): number | undefined {
    const value = this.raw(name);
    if (value === undefined) return undefined;
    const bounded = { max: Number.MAX_SAFE_INTEGER, ...range };
    if (Number.isInteger(value) && isWithin(value as number, bounded)) return value as number;
    // Only larger numbers need to know the largest integer.
    const shown = (value as number) > bounded.max ? bounded : range;
    throw this.invalid(name, `an integer${describeRange(shown)}`, describeValue(value));
  }

  string(name: string): string | undefined {
    const value = this.raw(name);
    return value === undefined ? undefined : this.text(name, value);
  }

  /** A string that names something: it is short, because requests keep it and logs, metrics and caches compare it. */
  name(name: string): string | undefined {
    const value = this.string(name);
    if (value === undefined || value.length <= nameLengthMax) return value;
    throw this.invalid(name, `a string of at most ${nameLengthMax} characters`, `${value.length} characters`);
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
  text(name: string, value: unknown): string {
    if (typeof value !== 'string') throw this.invalid(name, 'a string', describeValue(value));
    if (/\p{Surrogate}/u.test(value)) throw this.invalid(name, 'well-formed Unicode', 'a lone surrogate');
    return value;
  }

  /** A list with `read` applied to each item. In errors the name of an item is `name[i]`. */
  list<T>(
    name: string,
    read: (item: unknown, itemName: string) => T,
    limits: { min?: number; max?: number } = {},
  ): T[] | undefined {
    const value = this.raw(name);
    if (value === undefined) return undefined;
    if (!Array.isArray(value)) throw this.invalid(name, 'a list', describeValue(value));
    if (!isWithin(value.length, limits)) {
      throw this.invalid(name, `a list with a length${describeRange(limits)}`, `${value.length} items`);
    }
    return value.map((item: unknown, i) => read(item, `${name}[${i}]`));
  }

  object(name: string): FieldReader | undefined {
    const value = this.raw(name);
    return value === undefined ? undefined : new FieldReader(value, `${this.#path}${name}.`);
  }

  required<T>(name: string, value: T | undefined, expected: string): T {
    if (value === undefined) throw fieldMissing({ parameter: this.#path + name, expected });
    return value;
  }

  /** Accepts fields that other servers use and that do not change the text here. */
  ignore(names: readonly string[]): void {
    for (const name of names) this.raw(name);
  }

  /** The same for fields that name something or describe the request. */
  ignoreSmall(names: readonly string[]): void {
    for (const name of names) this.small(name, ignoredLengthMax);
  }

  /** Accepts fields that other servers know and that have no effect here. Returns those that are set. */
  ignoreForeign(names: readonly string[]): string[] {
    return names.filter((name) => this.raw(name) !== undefined);
  }

  /** Refuses a known field that is not supported, except for values that request nothing (`isNeutral`). */
  refuse(name: string, isNeutral: (value: unknown) => boolean, detail = ''): void {
    const value = this.raw(name);
    if (value === undefined || isNeutral(value)) return;
    throw fieldNotSupported({ parameter: this.#path + name, detail });
  }

  /** `actual` is shown unchanged: for a value of the caller, pass the result of `describeValue`. */
  invalid(name: string, expected: string, actual: string): Error {
    return invalidParameter({ parameter: this.#path + name, expected, actual });
  }

  /** Refuses fields that were not read. Call it after the last read. */
  finish(): void {
    for (const name of Object.keys(this.#fields)) {
      if (this.#known.has(name)) continue;
      const nearest = nearestName(name, this.#known);
      throw fieldUnknown({
        parameter: this.#path + shorten(name),
        hint: nearest === undefined ? '' : ` Did you mean \`${this.#path}${nearest}\`?`,
      });
    }
  }
}

export function isObject(value: unknown): value is Readonly<Record<string, unknown>> {
  return isJsonObject(value);
}

/** Numbers as JavaScript has them. A list without exact numbers is not copied: it may have a million tokens. */
function withPlainNumbers(value: unknown): unknown {
  if (value instanceof ExactNumber) return value.valueOf();
  if (!Array.isArray(value) || !value.some((item) => item instanceof ExactNumber || Array.isArray(item))) return value;
  return value.map(withPlainNumbers);
}

function shorten(text: string): string {
  return text.length <= 40 ? text : `${text.slice(0, 40)}...`;
}

function isWithin(value: number, { min, max, above }: Range): boolean {
  return (
    (min === undefined || value >= min) && (max === undefined || value <= max) && (above === undefined || value > above)
  );
}

function describeRange({ min, max, above }: Range): string {
  const bounds = [
    above === undefined ? undefined : `above ${above}`,
    min === undefined ? undefined : `of at least ${min}`,
    max === undefined ? undefined : `of at most ${max}`,
  ].filter((bound) => bound !== undefined);
  return bounds.length === 0 ? '' : ` ${bounds.join(' and ')}`;
}

type WithoutUndefined<T> = { [K in keyof T]?: Exclude<T[K], undefined> };

/** Readers return undefined for absent fields, and `exactOptionalPropertyTypes` does not allow such properties. */
export function withoutUndefined<T extends object>(value: T): WithoutUndefined<T> {
  return Object.fromEntries(Object.entries(value).filter(([, field]) => field !== undefined)) as WithoutUndefined<T>;
}
