import { compareDecimals, type Decimal, decimalOf } from './decimal.ts';
import { boundAbove, boundBelow, type NumberBounds, outOfReach } from './json-number.ts';
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

interface Bound {
  readonly keyword: string;
  readonly value: Decimal;
  /** Included in the range. */
  readonly reached: Decimal;
}

/** Throws SchemaError if the bounds contradict each other, or numbers of 20 digits do not reach them. */
export function numberBoundsOf(schema: SchemaObject, path: string): NumberBounds {
  const lower = strictest(boundOf(schema, 'minimum', path), above(schema, path), 1);
  const upper = strictest(boundOf(schema, 'maximum', path), below(schema, path), -1);
  if (lower !== undefined && upper !== undefined && compareDecimals(lower.reached, upper.reached) > 0) {
    throw contradiction(schema, lower.keyword, upper.keyword, path);
  }
  if (lower !== undefined && compareDecimals(lower.value, outOfReach) >= 0) throw unreachable(lower, schema, path);
  if (upper !== undefined && compareDecimals(upper.value, { ...outOfReach, isNegative: true }) <= 0)
    throw unreachable(upper, schema, path);
  return { min: lower?.reached, max: upper?.reached };
}

/** Bounds of both schemas. They can contradict each other. */
export const commonBounds = (a: NumberBounds, b: NumberBounds): NumberBounds => ({
  min: larger(a.min, b.min, 1),
  max: larger(a.max, b.max, -1),
});

function larger(a: Decimal | undefined, b: Decimal | undefined, sign: 1 | -1): Decimal | undefined {
  if (a === undefined || b === undefined) return a ?? b;
  return sign * compareDecimals(a, b) >= 0 ? a : b;
}

function boundOf(schema: SchemaObject, keyword: string, path: string): Bound | undefined {
  const text = numberOf(schema, keyword, path);
  return text === undefined ? undefined : { keyword, value: decimalOf(text), reached: decimalOf(text) };
}

/** In draft 4, `exclusiveMinimum: true` says that `minimum` is exclusive. */
function exclusiveText(schema: SchemaObject, keyword: string, other: string, path: string): string | undefined {
  const value = schema[keyword];
  if (typeof value === 'boolean') return value ? numberOf(schema, other, path) : undefined;
  return numberOf(schema, keyword, path);
}

function above(schema: SchemaObject, path: string): Bound | undefined {
  const keyword = 'exclusiveMinimum';
  const text = exclusiveText(schema, keyword, 'minimum', path);
  return text === undefined ? undefined : { keyword, value: decimalOf(text), reached: boundAbove(text) };
}

function below(schema: SchemaObject, path: string): Bound | undefined {
  const keyword = 'exclusiveMaximum';
  const text = exclusiveText(schema, keyword, 'maximum', path);
  return text === undefined ? undefined : { keyword, value: decimalOf(text), reached: boundBelow(text) };
}

function strictest(a: Bound | undefined, b: Bound | undefined, sign: 1 | -1): Bound | undefined {
  if (a === undefined || b === undefined) return a ?? b;
  return sign * compareDecimals(a.reached, b.reached) > 0 ? a : b;
}

const unreachable = ({ keyword }: Bound, schema: SchemaObject, path: string): SchemaError =>
  new SchemaError(
    pointer(path, keyword),
    `a bound of ${String(schema[keyword])} is out of reach: numbers have at most 20 digits`,
  );

const contradiction = (schema: SchemaObject, lower: string, upper: string, path: string): SchemaError =>
  new SchemaError(
    path,
    `\`${lower}\` of ${String(schema[lower])} contradicts \`${upper}\` of ${String(schema[upper])}`,
  );
