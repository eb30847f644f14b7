import { ExactNumber, namesOf } from '../base/exact-json.ts';
import { TemplateError } from './errors.ts';
import { Dict, type Value } from './values.ts';

/** Values of JSON as values of templates. Counts them, because their number limits the work of the template. */
export class ValueReader {
  /** Values and characters read so far. */
  values = 0;
  characters = 0;

  read(value: unknown, depth = 0): Value {
    this.values++;
    if (depth > 1000) throw new TemplateError('a value with more than 1000 levels');
    if (typeof value === 'string') {
      this.characters += value.length;
      return value;
    }
    if (value === null || typeof value === 'boolean' || typeof value === 'bigint') return value;
    // As Python reads the JSON that JavaScript writes of it.
    if (typeof value === 'number') return numberOf(String(value));
    if (value instanceof ExactNumber) return numberOf(value.text);
    if (Array.isArray(value)) return value.map((item) => this.read(item, depth + 1));
    if (typeof value !== 'object') throw new TemplateError(`templates cannot use a ${typeof value}`);
    return this.#dict(value, depth);
  }

  #dict(object: object, depth: number): Dict {
    const dict = new Dict();
    const entries =
      object instanceof Map ? object : namesOf(object).map((name) => [name, (object as Record<string, unknown>)[name]]);
    for (const [name, field] of entries as Iterable<readonly [string, unknown]>) {
      if (field === undefined) continue;
      this.characters += name.length;
      dict.set(name, this.read(field, depth + 1));
    }
    return dict;
  }
}

/** A number with a point or an exponent is a float. */
const numberOf = (text: string): bigint | number => (/^-?\d+$/.test(text) ? BigInt(text) : Number(text));
