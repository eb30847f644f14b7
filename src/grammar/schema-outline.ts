import { namesOf } from '../base/exact-json.ts';
import type { Conjunct, Plain, SchemaAtoms } from './schema-atoms.ts';
import { allTypes, declaredTypes, keyOfValue, namesIn, objectOf, pointer, typeOfValue } from './schema-keywords.ts';

/** What is easily known of the values that match: more values than these do not. */
interface ValueOutline {
  /** `number` stands for both kinds of numbers. */
  readonly types: ReadonlySet<string>;
  /** Keys of constants (`keyOfValue`); undefined: any values. */
  readonly values: ReadonlySet<string> | undefined;
  readonly excluded: ReadonlySet<string>;
}

export interface Outline extends ValueOutline {
  readonly required: ReadonlySet<string>;
  readonly absent: ReadonlySet<string>;
  /** Of members, if they are there. */
  readonly members: ReadonlyMap<string, ValueOutline>;
}

const numberKind = (type: string): string => (type === 'integer' ? 'number' : type);
const none: ReadonlySet<string> = new Set();
const anyType: ReadonlySet<string> = new Set(allTypes.map(numberKind));

/** Finds combinations of schemas that no value can match, before they are compiled. */
export class Outlines {
  readonly #atoms: SchemaAtoms;
  readonly #spend: (steps: number) => void;
  readonly #known = new Map<number, Outline>();

  constructor(atoms: SchemaAtoms, spend: (steps: number) => void) {
    this.#atoms = atoms;
    this.#spend = spend;
  }

  /** Undefined: no value matches. Options of `anyOf` and others are not looked at. */
  of(conjuncts: readonly Conjunct[]): Outline | undefined {
    const found = this.#atoms.resolve(conjuncts);
    return found && this.ofPlain(found.plain);
  }

  ofPlain(plain: readonly Plain[]): Outline {
    const [first, ...others] = plain.map((part) => this.#outlineOf(part));
    if (first === undefined)
      return { types: anyType, values: undefined, excluded: none, required: none, absent: none, members: new Map() };
    if (others.length === 0) return first;
    const all = [first, ...others];
    const value = commonValue(all);
    const required = new Set(all.flatMap((outline) => [...outline.required]));
    const absent = new Set(all.flatMap((outline) => [...outline.absent]));
    const members = new Map<string, ValueOutline>();
    this.#spend(all.length);
    for (const { members: some } of all) {
      this.#spend(some.size / 8);
      for (const [name, outline] of some) {
        const other = members.get(name);
        members.set(name, other === undefined ? outline : commonValue([other, outline]));
      }
    }
    return { ...value, required, absent, members };
  }

  /** True only if no value matches both. Members that neither requires may be absent. */
  areApart(a: Outline, b: Outline): boolean {
    this.#spend(0.25 + (b.members.size + b.required.size) / 16);
    if (isEmptyValue(commonValue([a, b]))) return true;
    if ([...b.required].some((name) => a.absent.has(name) || isImpossible(name, [a, b]))) return true;
    if ([...b.absent].some((name) => a.required.has(name))) return true;
    return [...b.members.keys()].some((name) => a.required.has(name) && isImpossible(name, [a, b]));
  }

  #outlineOf(plain: Plain): Outline {
    let outline = this.#known.get(plain.id);
    if (outline === undefined) {
      outline = this.#read(plain);
      this.#known.set(plain.id, outline);
    }
    return outline;
  }

  #read(plain: Plain): Outline {
    const { schema, path, facts } = plain;
    const properties = objectOf(schema, 'properties', path);
    const members = new Map<string, ValueOutline>();
    for (const name of namesOf(properties)) {
      const link = this.#atoms.link(properties[name], pointer(pointer(path, 'properties'), name));
      members.set(name, this.#valueOf([link]));
    }
    if (facts?.member !== undefined) members.set(facts.member.name, this.#valueOf([facts.member.value]));
    return {
      ...ownValue(plain),
      required: new Set(namesIn(schema, 'required', path)),
      absent: new Set(facts?.absent),
      members,
    };
  }

  #valueOf(conjuncts: readonly Conjunct[]): ValueOutline {
    const found = this.#atoms.resolve(conjuncts);
    if (found === undefined) return { types: none, values: none, excluded: none };
    return commonValue(found.plain.map(ownValue));
  }
}

function ownValue({ schema, path, facts }: Plain): ValueOutline {
  const list: unknown = schema.const === undefined ? schema.enum : [schema.const];
  const values = Array.isArray(list) ? list : undefined;
  const declared = declaredTypes(schema, path)?.map(numberKind);
  const types = new Set(declared ?? anyType);
  const ofValues = values && new Set(values.map((value) => numberKind(typeOfValue(value))));
  return {
    types: ofValues === undefined ? types : common(types, ofValues),
    values: values && new Set(values.map(keyOfValue)),
    excluded: new Set(facts?.notValues?.map(keyOfValue)),
  };
}

function isImpossible(name: string, outlines: readonly Outline[]): boolean {
  const members = outlines.map((outline) => outline.members.get(name)).filter((member) => member !== undefined);
  return members.length > 0 && isEmptyValue(commonValue(members));
}

/** Whether no value matches, because of one schema alone or of some together. */
export const isEmpty = (outline: Outline): boolean =>
  isEmptyValue(outline) ||
  [...outline.required].some((name) => outline.absent.has(name) || isImpossible(name, [outline]));

function commonValue(outlines: readonly ValueOutline[]): ValueOutline {
  const excluded = new Set(outlines.flatMap((outline) => [...outline.excluded]));
  const lists = outlines.map(({ values }) => values).filter((values) => values !== undefined);
  const [first, ...others] = lists;
  return {
    types: outlines.map(({ types }) => types).reduce(common, anyType),
    values: first && others.reduce(common, first),
    excluded,
  };
}

const isEmptyValue = ({ types, values, excluded }: ValueOutline): boolean =>
  types.size === 0 || (values !== undefined && [...values].every((key) => excluded.has(key)));

export const common = (a: ReadonlySet<string>, b: ReadonlySet<string>): ReadonlySet<string> =>
  a === b ? a : new Set([...a].filter((item) => b.has(item)));
