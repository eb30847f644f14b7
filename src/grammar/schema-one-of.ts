import type { Branch, Conjunct, SchemaAtoms } from './schema-atoms.ts';
import type { Link } from './schema-negation.ts';
import { common, type Outline } from './schema-outline.ts';

/** Options whose other options must be excluded. The exclusions are combined, so there can be few of them. */
const overlapsMax = 12;
/** All pairs of more options are not compared. */
const optionsMax = 200;

/**
 * `oneOf` as a choice. Options with a common member whose constants differ need this member, as `discriminator` means it.
 * An option that overlaps with others excludes them.
 */
export function oneOfBranch(options: readonly Link[], path: string, atoms: SchemaAtoms): Branch {
  const outlines = options.map((option) => atoms.outlines.of([option]));
  const known = outlines.filter((outline) => outline !== undefined);
  const name = discriminatorOf(known);
  if (name !== undefined) {
    const needed = atoms.plain({ required: [name] }, path);
    return atoms.branch(
      options.map((option) => [option, needed]),
      path,
    );
  }
  const overlaps = areConstants(known) ? [] : overlapsOf(outlines);
  const count = overlaps?.reduce((sum, others) => sum + others.length, 0) ?? Infinity;
  if (count > overlapsMax) {
    atoms.report(path, 'two options of `oneOf` may match the same value; use `anyOf`');
    return atoms.branch(
      options.map((option) => [option]),
      path,
    );
  }
  return atoms.branch(
    options.map((option, i): Conjunct[] => [
      option,
      ...(overlaps?.[i] ?? []).map((other): Link => ({ ...options[other]!, kind: 'not', owners: [] })),
    ]),
    path,
  );
}

/** A member that all options have, with other constants in each. */
function discriminatorOf(outlines: readonly Outline[]): string | undefined {
  const [first] = outlines;
  if (first === undefined || outlines.some(({ types }) => types.size !== 1 || !types.has('object'))) return undefined;
  return [...first.members.keys()].find((name) =>
    areDistinct(outlines.map(({ members }) => members.get(name)?.values)),
  );
}

const areConstants = (outlines: readonly Outline[]): boolean => areDistinct(outlines.map(({ values }) => values));

/** Whether each option has a list of values, which no other option has. */
function areDistinct(lists: readonly (ReadonlySet<string> | undefined)[]): boolean {
  if (lists.some((keys) => keys === undefined)) return false;
  const all = lists.flatMap((keys) => [...keys!]);
  return new Set(all).size === all.length;
}

/** For each option those that may match the same value. Undefined: there are too many options. */
function overlapsOf(outlines: readonly (Outline | undefined)[]): readonly (readonly number[])[] | undefined {
  if (outlines.length > optionsMax) return undefined;
  return outlines.map((outline, i) =>
    outlines.flatMap((other, j) => {
      const isApart = i === j || outline === undefined || other === undefined || areDisjoint(outline, other);
      return isApart ? [] : [j];
    }),
  );
}

function areDisjoint(a: Outline, b: Outline): boolean {
  const types = common(a.types, b.types);
  if (types.size === 0) return true;
  if (a.values !== undefined && b.values !== undefined) return common(a.values, b.values).size === 0;
  if ([...types].some((type) => type !== 'object')) return false;
  return [...common(a.required, b.required)].some((name) => {
    const [left, right] = [a.members.get(name)?.values, b.members.get(name)?.values];
    return left !== undefined && right !== undefined && common(left, right).size === 0;
  });
}
