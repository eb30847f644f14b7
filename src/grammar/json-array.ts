import { choice, choiceOf, type Expression, empty, nothing, optional, repeat, sequence } from './expression.ts';
import type { SchemaCompiler } from './json-schema.ts';
import type { Conjunct, Plain } from './schema-atoms.ts';
import { countsOf } from './schema-bounds.ts';
import { countOf, pointer, SchemaError, type SchemaObject } from './schema-keywords.ts';

/** Distinct items in any order need a rule for each set of items that were written. */
const orderedFrom = 7;
const distinctMax = 500;
/** Lists with `contains` are counted item by item. */
const countedMax = 1000;

/** What the schemas say together about arrays. */
interface ArrayParts {
  readonly firsts: readonly (readonly Conjunct[])[];
  /** Of all further items. Undefined: there are none. */
  readonly rest: readonly Conjunct[] | undefined;
  readonly min: number;
  readonly max: number;
  readonly contains: readonly Contained[];
  /** The place of `uniqueItems`. */
  readonly uniqueAt: string | undefined;
}

interface Contained {
  readonly value: Conjunct;
  readonly min: number;
  readonly max: number;
  readonly path: string;
}

/** Arrays that match all of the schemas. */
export function arrayOf(plain: readonly Plain[], compiler: SchemaCompiler): Expression {
  const parts = partsOf(plain, compiler);
  const { min, max, contains, uniqueAt } = parts;
  if (max < min) return contradiction(plain, min, max);
  if (uniqueAt !== undefined && max > 1) {
    const distinct = contains.length === 0 ? distinctItems(parts, compiler) : undefined;
    if (distinct !== undefined) return distinct;
    compiler.atoms.report(uniqueAt, '`uniqueItems` is supported for items with a list of values only');
  }
  if (contains.length === 0) return listOfParts(parts, compiler);
  const counted = contains.length === 1 ? countedItems(parts, contains[0]!, compiler) : undefined;
  if (counted !== undefined) return counted;
  compiler.atoms.report(contains[0]!.path, '`contains` with so many items or other `contains` is not supported');
  return listOfParts(parts, compiler);
}

function contradiction(plain: readonly Plain[], min: number, max: number): Expression {
  const [only] = plain;
  if (plain.length > 1) return nothing;
  throw new SchemaError(only!.path, `\`minItems\` of ${min} contradicts \`items\`, which allows ${max} item(s)`);
}

/** The schemas of the first items, and that of all others. */
function tupleOf({ items, prefixItems, additionalItems }: SchemaObject, path: string) {
  const prefix = Array.isArray(items) ? items : (prefixItems ?? []);
  if (!Array.isArray(prefix)) throw new SchemaError(pointer(path, 'prefixItems'), 'expected a list');
  return { prefix: prefix as readonly unknown[], rest: Array.isArray(items) ? additionalItems : items };
}

function partsOf(plain: readonly Plain[], { atoms }: SchemaCompiler): ArrayParts {
  let [min, max] = [0, Infinity];
  const contains: Contained[] = [];
  let uniqueAt: string | undefined;
  const tuples = plain.map((part) => ({ ...part, ...tupleOf(part.schema, part.path) }));
  for (const { schema, path, facts } of plain) {
    const counts = countsOf(schema, 'minItems', 'maxItems', path);
    [min, max] = [Math.max(min, counts.min), Math.min(max, counts.max)];
    if (schema.uniqueItems === true) uniqueAt = pointer(path, 'uniqueItems');
    if (schema.contains !== undefined) {
      const place = pointer(path, 'contains');
      const value = atoms.link(schema.contains, place);
      const least = countOf(schema, 'minContains', path, 1);
      const most = countOf(schema, 'maxContains', path, Infinity);
      if (least > most) {
        throw new SchemaError(path, `\`minContains\` of ${least} contradicts \`maxContains\` of ${most}`);
      }
      if (least > 0 || most < Infinity) contains.push({ value, min: least, max: most, path: place });
    }
    if (facts?.some !== undefined) contains.push({ value: facts.some, min: 1, max: Infinity, path });
  }
  const itemAt = (index: number): readonly Conjunct[] =>
    tuples.flatMap(({ schema, path, facts, prefix, rest, owners }): Conjunct[] => {
      const inner = index < prefix.length ? prefix[index] : rest;
      const place = index < prefix.length ? pointer(pointer(path, 'prefixItems'), index) : pointer(path, 'items');
      const isEvaluated = (): boolean =>
        tuples.some(
          (other) =>
            other.owners.includes(atoms.idOf(schema)) && (index < other.prefix.length || other.rest !== undefined),
        );
      const unevaluated = schema.unevaluatedItems;
      return [
        ...(inner === undefined ? [] : [atoms.link(inner, place, owners)]),
        ...(facts?.each === undefined ? [] : [facts.each]),
        ...(facts?.element?.index === index ? [facts.element.value] : []),
        ...(unevaluated === undefined || isEvaluated()
          ? []
          : [atoms.link(unevaluated, pointer(path, 'unevaluatedItems'))]),
      ];
    });
  const count = Math.max(
    0,
    ...tuples.map(({ prefix, facts }) => Math.max(prefix.length, (facts?.element?.index ?? -1) + 1)),
  );
  const hasRest = tuples.some(({ rest, schema }) => rest !== undefined || schema.unevaluatedItems !== undefined);
  const rest = itemAt(count);
  const isRestUsed = max > count && (hasRest || count === 0 || min > count) && atoms.resolve(rest) !== undefined;
  const firsts = Array.from({ length: Math.min(count, max) }, (_, i) => itemAt(i));
  const impossible = firsts.findIndex((item) => atoms.resolve(item) === undefined);
  const known = impossible === -1 ? firsts : firsts.slice(0, impossible);
  const isOpen = isRestUsed && impossible === -1;
  return {
    firsts: known,
    rest: isOpen ? rest : undefined,
    min,
    max: isOpen ? max : Math.min(max, known.length),
    contains,
    uniqueAt,
  };
}

function listOfParts(parts: ArrayParts, compiler: SchemaCompiler): Expression {
  const { firsts, rest, min, max } = parts;
  const { grammar } = compiler;
  const { comma } = grammar;
  const item = rest === undefined ? nothing : compiler.valueOf(rest);
  let inside: Expression =
    rest !== undefined && firsts.length > 0
      ? repeat(sequence(comma, item), Math.max(0, min - firsts.length), max - firsts.length)
      : empty;
  for (let i = firsts.length - 1; i >= 0; i--) {
    const part = sequence(...(i === 0 ? [] : [comma]), compiler.valueOf(firsts[i]!), inside);
    const more = i >= min && i > 0 ? optional(part) : part;
    // A rule, so that long tuples are not nested expressions.
    inside = i % 16 === 0 && i > 0 ? grammar.newRule(more) : more;
  }
  if (firsts.length === 0) inside = rest === undefined ? nothing : grammar.list(item, Math.max(min, 1), max);
  const filled = grammar.enclosed('[', inside, ']');
  return min > 0 ? filled : choice(grammar.enclosed('[', undefined, ']'), filled);
}

/** A rule for each number of items and of contained items, as far as they matter. */
function countedItems(parts: ArrayParts, contained: Contained, compiler: SchemaCompiler): Expression | undefined {
  const { firsts, rest, min, max } = parts;
  const { grammar } = compiler;
  const itemsEnd = max === Infinity ? Math.max(firsts.length, min, 1) : max;
  const hitsEnd = contained.max === Infinity ? contained.min : contained.max;
  if ((itemsEnd + 1) * (hitsEnd + 1) > countedMax) return undefined;
  const other: Conjunct | undefined = contained.max === Infinity ? undefined : opposite(contained.value);
  if (contained.max !== Infinity && other === undefined) return undefined;
  const rules = new Map<string, Expression>();
  const after = (items: number, hits: number): Expression => {
    const key = `${items},${hits}`;
    let known = rules.get(key);
    if (known === undefined) {
      const declared = grammar.declareRule();
      known = declared;
      rules.set(key, known);
      grammar.rules.set(declared.name, build(items, hits));
    }
    return known;
  };
  const build = (items: number, hits: number): Expression => {
    const options: Expression[] = items >= min && hits >= contained.min ? [empty] : [];
    const item = firsts[items] ?? rest;
    if (items >= max || item === undefined) return choiceOf(options);
    const add = (value: readonly Conjunct[], found: number): unknown =>
      options.push(
        sequence(
          items === 0 ? empty : grammar.comma,
          compiler.valueOf(value),
          after(Math.min(items + 1, itemsEnd), Math.min(found, hitsEnd)),
        ),
      );
    // An item that is contained may be taken for another one, unless there is a maximum.
    const hasMaximum = contained.max < Infinity;
    if (hasMaximum ? hits < contained.max : hits < hitsEnd) add([...item, contained.value], hits + 1);
    add(other === undefined ? item : [...item, other], hits);
    return choiceOf(options);
  };
  return grammar.enclosed('[', after(0, 0), ']');
}

function opposite(value: Conjunct): Conjunct | undefined {
  if (value.kind === 'schema') return { ...value, kind: 'not', owners: [] };
  return value.kind === 'not' ? { ...value, kind: 'schema' } : undefined;
}

/** Items of a list of values, each at most once. Undefined if there may be others. */
function distinctItems({ firsts, rest, min, max }: ArrayParts, compiler: SchemaCompiler): Expression | undefined {
  if (firsts.length > 0 || rest === undefined) return undefined;
  const values = compiler.finiteValues(rest, distinctMax);
  if (values === undefined) return undefined;
  if (values.length < min) return nothing;
  const { grammar } = compiler;
  const limit = Math.min(max, values.length);
  const rules = new Map<string, Expression>();
  const isOrdered = values.length >= orderedFrom;
  const after = (count: number, taken: number): Expression => {
    const key = `${count},${taken}`;
    let known = rules.get(key);
    if (known === undefined) {
      const declared = grammar.declareRule();
      known = declared;
      rules.set(key, known);
      grammar.rules.set(declared.name, isOrdered ? ascending(count, taken) : anyOrder(count, taken));
    }
    return known;
  };
  /** `taken`: the values that were written, one bit each. */
  const anyOrder = (count: number, taken: number): Expression => {
    const options: Expression[] = count >= min ? [empty] : [];
    for (const [i, value] of values.entries()) {
      if (count >= limit || (taken & (1 << i)) !== 0) continue;
      options.push(
        sequence(count === 0 ? empty : grammar.comma, grammar.constant(value), after(count + 1, taken | (1 << i))),
      );
    }
    return choiceOf(options);
  };
  // Values come in the order of their list. Counts matter only up to the minimum, and if there is a maximum.
  const countsEnd = limit < values.length ? limit : Math.max(min, 1);
  const ascending = (count: number, from: number): Expression => {
    if (from === values.length) return count >= min ? empty : nothing;
    const options: Expression[] = [after(count, from + 1)];
    if (count < limit || limit === values.length) {
      const item = sequence(count === 0 ? empty : grammar.comma, grammar.constant(values[from]));
      options.push(sequence(item, after(Math.min(count + 1, countsEnd), from + 1)));
    }
    return choiceOf(options);
  };
  if (isOrdered && values.length * (countsEnd + 1) > 4 * countedMax) return undefined;
  return grammar.enclosed('[', after(0, 0), ']');
}
