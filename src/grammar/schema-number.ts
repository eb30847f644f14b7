import { type Automaton, type Factor, intersection, trimmed } from './automaton.ts';
import { AutomatonTooLarge } from './budget.ts';
import { decimalOf, isNumber, textOfNumber } from './decimal.ts';
import { determinize } from './determinize.ts';
import { choiceOf, type Expression, nothing, rule } from './expression.ts';
import {
  distinctNumber,
  integerBetween,
  multiplesOf,
  type NumberBounds,
  numberBetween,
  textsOfValue,
} from './json-number.ts';
import type { SchemaCompiler } from './json-schema.ts';
import type { Plain } from './schema-atoms.ts';
import { commonBounds, numberBoundsOf } from './schema-bounds.ts';
import { numberOf, pointer, SchemaError } from './schema-keywords.ts';
import { asExpression } from './whole-regex.ts';

const statesMax = 12_000;

/** Numbers that match all of the schemas. */
export function numberOfParts(plain: readonly Plain[], isInteger: boolean, compiler: SchemaCompiler): Expression {
  const bounds = plain.reduce<NumberBounds>(
    (sum, { schema, path }) => commonBounds(sum, numberBoundsOf(schema, path)),
    {},
  );
  const range = isInteger ? integerBetween(bounds) : numberBetween(bounds);
  const sets = plain.flatMap((part) => setsOf(part, compiler));
  if (sets.length === 0) {
    const isFree = bounds.min === undefined && bounds.max === undefined;
    return isFree ? rule(isInteger ? 'integer' : 'number') : range;
  }
  const decimals = isInteger ? range : bounds.min === undefined && bounds.max === undefined ? distinctNumber : range;
  return intersected(decimals, sets, compiler) ?? range;
}

/** Numbers of a keyword, and its place. */
interface NumberSet {
  /** Undefined: it would be too large. */
  readonly automaton: Automaton | undefined;
  readonly isNegated: boolean;
  readonly path: string;
  readonly name: string;
}

function setsOf({ schema, path, facts }: Plain, { grammar }: SchemaCompiler): readonly NumberSet[] {
  const { budget } = grammar;
  const divisor = numberOf(schema, 'multipleOf', path);
  const sets: NumberSet[] = [];
  const addMultiples = (text: string, isNegated: boolean): void => {
    const place = pointer(path, 'multipleOf');
    const value = decimalOf(text);
    if (value.digits === '' || value.isNegative) throw new SchemaError(place, 'expected a number above 0');
    const name = isNegated ? 'the negation of `multipleOf`' : '`multipleOf`';
    sets.push({ automaton: multiplesOf(value, statesMax / 2, budget), isNegated, path: place, name });
  };
  if (divisor !== undefined) addMultiples(divisor, false);
  if (facts?.notMultipleOf !== undefined) addMultiples(facts.notMultipleOf, true);
  const excluded = (facts?.notValues ?? []).filter(isNumber);
  // Readers take a number for the nearest double.
  const texts = excluded
    .flatMap((number) => [number, Number(number)])
    .map((number) => (isNumber(number) ? textsOfValue(decimalOf(textOfNumber(number))) : undefined))
    .filter((text) => text !== undefined);
  if (texts.length > 0) {
    const automaton = determinize(choiceOf(texts), budget, statesMax);
    sets.push({ automaton, isNegated: true, path, name: 'the negation of `enum`' });
  }
  return sets;
}

/** Undefined if the sets are not kept, which is reported. */
function intersected(
  range: Expression,
  sets: readonly NumberSet[],
  { grammar, atoms }: SchemaCompiler,
): Expression | undefined {
  const { budget } = grammar;
  const tooLarge = sets.find(({ automaton }) => automaton === undefined);
  if (tooLarge === undefined) {
    const [numbers, near] = [determinize(range, budget, statesMax), determinize(distinctNumber, budget, statesMax)];
    if (numbers === undefined || near === undefined) return nothing;
    const factors: Factor[] = [numbers, near].map((automaton) => ({ automaton, isNegated: false }));
    for (const { automaton, isNegated } of sets) factors.push({ automaton: automaton!, isNegated });
    try {
      const found = budget.ofAutomaton(() => trimmed(intersection(factors, statesMax, budget)));
      return found === undefined ? nothing : asExpression(found);
    } catch (error) {
      if (!(error instanceof AutomatonTooLarge)) throw error;
    }
  }
  const { path, name } = tooLarge ?? sets[0]!;
  atoms.report(path, `${name} needs too many states`);
  return undefined;
}
