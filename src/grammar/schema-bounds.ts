import { largestNumber, type NumberBounds } from './json-number.ts';
import { countMax } from './regex.ts';
import { countOf, numberOf, pointer, SchemaError, type SchemaObject } from './schema-keywords.ts';

/** Between two numbers of characters, elements or members. */
export interface Counts {
  readonly min: number;
  /** At most `countMax`, or Infinity: a grammar may allow fewer values than the schema. */
  readonly max: number;
}

/** @throws SchemaError if the minimum is above the maximum, or above `countMax`. */
export function countsOf(schema: SchemaObject, minimum: string, maximum: string, path: string): Counts {
  const min = countOf(schema, minimum, path, 0);
  const max = countOf(schema, maximum, path, Infinity);
  if (min > max) throw contradiction(schema, minimum, maximum, path);
  if (min > countMax) throw new SchemaError(pointer(path, minimum), `a minimum above ${countMax}`, true);
  return { min, max: max === Infinity ? max : Math.min(max, countMax) };
}

/** Undefined: any number. Throws SchemaError if the bounds contradict each other, or numbers of 20 digits do not reach them. */
export function numberBoundsOf(schema: SchemaObject, path: string): NumberBounds | undefined {
  const [min, above] = [numberOf(schema, 'minimum', path), numberOf(schema, 'exclusiveMinimum', path)];
  const [max, below] = [numberOf(schema, 'maximum', path), numberOf(schema, 'exclusiveMaximum', path)];
  if ([min, above, max, below].every((bound) => bound === undefined)) return undefined;
  const isMinExclusive = above !== undefined && (min === undefined || above >= min);
  const isMaxExclusive = below !== undefined && (max === undefined || below <= max);
  const bounds = { min: isMinExclusive ? above : min, max: isMaxExclusive ? below : max };
  const [lower, upper] = [
    isMinExclusive ? 'exclusiveMinimum' : 'minimum',
    isMaxExclusive ? 'exclusiveMaximum' : 'maximum',
  ];
  const [first, last] = [bounds.min ?? -Infinity, bounds.max ?? Infinity];
  if (first > last || (first === last && (isMinExclusive || isMaxExclusive))) {
    throw contradiction(schema, lower, upper, path);
  }
  if (first >= largestNumber) throw outOfReach(first, pointer(path, lower));
  if (last <= -largestNumber) throw outOfReach(last, pointer(path, upper));
  return {
    ...(bounds.min === undefined ? {} : { min: bounds.min }),
    ...(bounds.max === undefined ? {} : { max: bounds.max }),
    isMinExclusive,
    isMaxExclusive,
  };
}

const outOfReach = (bound: number, path: string): SchemaError =>
  new SchemaError(path, `a bound of ${bound} is out of reach: numbers have at most 20 digits`);

const contradiction = (schema: SchemaObject, lower: string, upper: string, path: string): SchemaError =>
  new SchemaError(
    path,
    `\`${lower}\` of ${String(schema[lower])} contradicts \`${upper}\` of ${String(schema[upper])}`,
  );
