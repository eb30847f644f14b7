import { isJsonObject, type JsonObject, type JsonValue } from '../base/json.ts';
import { didYouMean } from '../base/nearest-name.ts';
import { kvConfigInvalid } from './errors.ts';

/** Reads `kv_connector_extra_config` field by field. `finish` refuses fields that no method has read. */
export class ExtraConfig {
  readonly #raw: JsonObject;
  readonly #path: string;
  readonly #known = new Set<string>();
  readonly #ignored = new Set<string>();

  constructor(raw: JsonObject, path = 'kv_connector_extra_config') {
    this.#raw = raw;
    this.#path = path;
  }

  text(name: string): string | undefined {
    const value = this.#get(name);
    if (value === undefined) return undefined;
    if (typeof value !== 'string' || value === '') throw this.wrong(name, 'a text that is not empty', value);
    return value;
  }

  boolean(name: string, fallback: boolean): boolean {
    const value = this.#get(name) ?? fallback;
    if (typeof value !== 'boolean') throw this.wrong(name, 'true or false', value);
    return value;
  }

  number(name: string, fallback: number, range: { readonly min: number; readonly max?: number }): number {
    const value = this.#get(name) ?? fallback;
    const max = range.max ?? Number.MAX_SAFE_INTEGER;
    if (typeof value === 'number' && value >= range.min && value <= max) return value;
    const bounds = range.max === undefined ? `of at least ${range.min}` : `from ${range.min} to ${range.max}`;
    throw this.wrong(name, `a number ${bounds}`, value);
  }

  integer(name: string, fallback: number, range: { readonly min: number; readonly max?: number }): number {
    const value = this.number(name, fallback, range);
    if (!Number.isSafeInteger(value)) throw this.wrong(name, 'a whole number', value);
    return value;
  }

  /** As `number`, without a default. */
  optionalNumber(name: string, range: { readonly min: number; readonly max?: number }): number | undefined {
    return this.#get(name) === undefined ? undefined : this.number(name, range.min, range);
  }

  /** As `integer`, without a default. */
  optionalInteger(name: string, range: { readonly min: number; readonly max?: number }): number | undefined {
    return this.#get(name) === undefined ? undefined : this.integer(name, range.min, range);
  }

  choice<T extends string>(name: string, choices: readonly T[], fallback: T | undefined): T {
    const value = this.#get(name) ?? fallback;
    const found = choices.find((choice) => choice === value);
    if (found === undefined) throw this.wrong(name, `one of ${choices.join(', ')}`, value);
    return found;
  }

  list(name: string): readonly JsonValue[] | undefined {
    const value = this.#get(name);
    if (value === undefined) return undefined;
    if (!Array.isArray(value)) throw this.wrong(name, 'an array', value);
    return value as readonly JsonValue[];
  }

  object(name: string): ExtraConfig | undefined {
    const value = this.#get(name);
    if (value === undefined) return undefined;
    if (!isJsonObject(value)) throw this.wrong(name, 'an object', value);
    return new ExtraConfig(value, `${this.#path}.${name}`);
  }

  objects(name: string): readonly ExtraConfig[] {
    return (this.list(name) ?? []).map((value, i) => {
      if (!isJsonObject(value)) throw this.wrong(`${name}[${i}]`, 'an object', value);
      return new ExtraConfig(value, `${this.#path}.${name}[${i}]`);
    });
  }

  /** The fields that were not read, for a class that checks them itself. */
  others(): JsonObject {
    const others = Object.entries(this.#raw).filter(([name]) => !this.#known.has(name));
    for (const [name] of others) this.ignore(name);
    return Object.fromEntries(others);
  }

  /** The caller handles this field by itself. */
  ignore(name: string): void {
    this.#ignored.add(name);
  }

  /** Throws for unknown names, so that a misspelt name is not ignored. */
  finish(): void {
    for (const name of Object.keys(this.#raw)) {
      if (this.#known.has(name) || this.#ignored.has(name)) continue;
      const expected = `absent: there is no such setting (known: ${[...this.#known].join(', ')})`;
      throw this.wrong(name, expected, this.#raw[name], didYouMean(name, this.#known));
    }
  }

  wrong(name: string, expected: string, actual: JsonValue | undefined, hint = '') {
    const text = actual === undefined ? 'nothing' : JSON.stringify(actual);
    return kvConfigInvalid({ parameter: `${this.#path}.${name}`, expected, actual: text, hint });
  }

  #get(name: string): JsonValue | undefined {
    this.#known.add(name);
    const value = this.#raw[name];
    return value === null ? undefined : value;
  }
}
