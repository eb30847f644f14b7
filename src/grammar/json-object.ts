import { namesOf } from '../base/exact-json.ts';
import { type Automaton, automatonOfTexts, type Factor, intersection, matches, trimmed } from './automaton.ts';
import { AutomatonTooLarge } from './budget.ts';
import {
  choice,
  choiceOf,
  type Expression,
  empty,
  nothing,
  optional,
  repeat,
  rule,
  sequence,
  text,
} from './expression.ts';
import type { SchemaCompiler } from './json-schema.ts';
import { RegexError } from './regex.ts';
import type { Conjunct, Plain } from './schema-atoms.ts';
import { countsOf } from './schema-bounds.ts';
import { declaredTypes, namesIn, objectOf, pointer, SchemaError } from './schema-keywords.ts';
import { rulesOf } from './schema-string.ts';

/** Names that are counted need a rule for each name and count. */
const countedMax = 4000;
/** Patterns of names are combined: each name matches some of them. */
const patternsMax = 6;
const namesStatesMax = 3000;
/** Names that `propertyNames` lists. */
const listedMax = 2000;

/** A pattern of `patternProperties`. */
interface NamePattern {
  readonly pattern: string;
  /** Undefined: no name matches. */
  readonly automaton: Automaton | undefined;
}

interface ExtraCounts {
  readonly min: number;
  readonly max: number;
  readonly isRepeated: boolean;
}

interface Member {
  readonly expression: Expression;
  readonly isRequired: boolean;
}

/** What the value of a member must match. */
export interface NamedMember {
  readonly name: string;
  readonly conjuncts: readonly Conjunct[];
  readonly isRequired: boolean;
}

/** Objects that match all of the schemas. */
export function objectOfParts(plain: readonly Plain[], compiler: SchemaCompiler): Expression {
  return new ObjectReader(plain, compiler).read();
}

/** The members of these objects, for formats that write each with its name. Undefined: no object matches. */
export function membersOfParts(plain: readonly Plain[], compiler: SchemaCompiler) {
  const reader = new ObjectReader(plain, compiler);
  const named = reader.named();
  return named && { named, others: named.length === 0 ? reader.others() : undefined };
}

class ObjectReader {
  readonly #plain: readonly Plain[];
  readonly #compiler: SchemaCompiler;
  readonly #patterns: readonly NamePattern[];

  constructor(plain: readonly Plain[], compiler: SchemaCompiler) {
    this.#plain = plain;
    this.#compiler = compiler;
    this.#patterns = this.#readPatterns();
  }

  read(): Expression {
    const { grammar } = this.#compiler;
    const named = this.named();
    if (named === undefined) return nothing;
    const members = named.map(({ name, conjuncts, isRequired }): Member => {
      const expression = grammar.member(text(JSON.stringify(name)), this.#compiler.valueOf(conjuncts));
      return { expression, isRequired };
    });
    const names = new Set([...this.#names(), ...this.#absent]);
    const extra = this.#listedNames() === undefined ? this.#extraMembers(names) : undefined;
    return this.#counted(members, extra);
  }

  /** The members that can be there; undefined: one that is required cannot. */
  named(): readonly NamedMember[] | undefined {
    const required = this.#required;
    const members: NamedMember[] = [];
    for (const name of this.#names()) {
      const conjuncts = this.#absent.has(name) || !this.#isNameAllowed(name) ? undefined : this.#valueAt(name);
      const isPossible = conjuncts !== undefined && this.#compiler.atoms.resolve(conjuncts) !== undefined;
      if (!isPossible && required.has(name)) return undefined;
      if (isPossible) members.push({ name, conjuncts, isRequired: required.has(name) });
    }
    return members;
  }

  /** What the values of members without a declared name match; undefined: there are none. */
  others(): readonly Conjunct[] | undefined {
    if (this.#names().size > 0 || !this.#isOpen()) return undefined;
    const links = this.#plain.flatMap((part) => this.#ofOtherKeywords(part, new Set(), false, () => false));
    return this.#compiler.atoms.resolve(links) === undefined ? undefined : links;
  }

  get #required(): ReadonlySet<string> {
    return new Set(this.#plain.flatMap(({ schema, path }) => namesIn(schema, 'required', path)));
  }

  get #absent(): ReadonlySet<string> {
    return new Set(this.#plain.flatMap(({ facts }) => facts?.absent ?? []));
  }

  #names(): ReadonlySet<string> {
    return new Set([...this.#declaredNames(), ...(this.#listedNames() ?? []), ...this.#required]);
  }

  #declaredNames(): readonly string[] {
    return this.#plain.flatMap(({ schema, path, facts }) => [
      ...namesOf(objectOf(schema, 'properties', path)),
      ...(facts?.member === undefined ? [] : [facts.member.name]),
    ]);
  }

  /** The names that `propertyNames` lists, if it does. */
  #listedNames(): readonly string[] | undefined {
    const links = this.#nameLinks();
    if (links.length === 0) return undefined;
    return this.#compiler.finiteValues(links, listedMax)?.filter((name) => typeof name === 'string');
  }

  #nameLinks(): readonly Conjunct[] {
    const { atoms } = this.#compiler;
    return this.#plain.flatMap(({ schema, path }) =>
      schema.propertyNames === undefined ? [] : [atoms.link(schema.propertyNames, pointer(path, 'propertyNames'))],
    );
  }

  #isNameAllowed(name: string): boolean {
    const links = this.#nameLinks();
    return links.length === 0 || this.#compiler.values.accepts(name, links);
  }

  /** What the value of a named member must match. */
  #valueAt(name: string): readonly Conjunct[] {
    const matching = new Set(
      this.#patterns
        .filter(({ automaton }) => automaton !== undefined && matches(automaton, name))
        .map(({ pattern }) => pattern),
    );
    return this.#plain.flatMap((part): Conjunct[] => {
      const { schema, path, facts, owners } = part;
      const properties = objectOf(schema, 'properties', path);
      const isDeclared = Object.hasOwn(properties, name);
      const place = pointer(pointer(path, 'properties'), name);
      return [
        ...(isDeclared ? [this.#compiler.atoms.link(properties[name], place, owners)] : []),
        ...(facts?.member?.name === name ? [facts.member.value] : []),
        ...this.#ofOtherKeywords(part, matching, isDeclared, (other) =>
          Object.hasOwn(objectOf(other.schema, 'properties', other.path), name),
        ),
      ];
    });
  }

  /** `patternProperties`, `additionalProperties` and `unevaluatedProperties` of one schema. */
  #ofOtherKeywords(
    { schema, path, owners }: Plain,
    matching: ReadonlySet<string>,
    isDeclared: boolean,
    isDeclaredIn: (other: Plain) => boolean,
  ): readonly Conjunct[] {
    const { atoms } = this.#compiler;
    const patterns = objectOf(schema, 'patternProperties', path);
    const found = namesOf(patterns).filter((pattern) => matching.has(pattern));
    const links = found.map((pattern) =>
      atoms.link(patterns[pattern], pointer(pointer(path, 'patternProperties'), pattern), owners),
    );
    const { additionalProperties, unevaluatedProperties } = schema;
    if (additionalProperties !== undefined && !isDeclared && found.length === 0) {
      links.push(atoms.link(additionalProperties, pointer(path, 'additionalProperties'), owners));
    }
    if (unevaluatedProperties === undefined) return links;
    const own = atoms.idOf(schema);
    const isEvaluated = this.#plain.some(
      (other) =>
        other.owners.includes(own) &&
        (isDeclaredIn(other) ||
          other.schema.additionalProperties !== undefined ||
          namesOf(objectOf(other.schema, 'patternProperties', other.path)).some((pattern) => matching.has(pattern))),
    );
    if (!isEvaluated) links.push(atoms.link(unevaluatedProperties, pointer(path, 'unevaluatedProperties')));
    return links;
  }

  /** A member with a name that no schema says; undefined if there may be none. */
  #extraMembers(names: ReadonlySet<string>): Expression | undefined {
    const options = this.#nameClasses(names).flatMap(({ key, matching }) => {
      if (matching.size === 0 && !this.#isOpen()) return [];
      const links = this.#plain.flatMap((part) => this.#ofOtherKeywords(part, matching, false, () => false));
      if (this.#compiler.atoms.resolve(links) === undefined) return [];
      return [this.#compiler.grammar.member(key(), this.#compiler.valueOf(links))];
    });
    return options.length === 0 ? undefined : this.#compiler.grammar.newRule(choiceOf(options));
  }

  /** Without `additionalProperties`, an object with `properties` has no others. */
  #isOpen(): boolean {
    const isSaid = this.#plain.some(
      ({ schema }) => schema.additionalProperties !== undefined || isOpening(schema.unevaluatedProperties),
    );
    const isPlain = this.#plain.every(
      ({ schema }) => schema.properties === undefined && schema.patternProperties === undefined,
    );
    return isSaid || isPlain;
  }

  /** Other names than `names`, by the patterns that they match. */
  #nameClasses(names: ReadonlySet<string>): readonly { key(): Expression; readonly matching: ReadonlySet<string> }[] {
    const { grammar, strings } = this.#compiler;
    const nameRules = this.#nameRules();
    if (names.size === 0 && this.#patterns.length === 0 && nameRules === undefined)
      return [{ key: () => rule('string'), matching: new Set() }];
    const excluded: Factor[] =
      names.size === 0 ? [] : [{ automaton: automatonOfTexts(names, grammar.budget), isNegated: true }];
    let classes: { readonly factors: readonly Factor[]; readonly matching: ReadonlySet<string> }[] = [
      { factors: excluded, matching: new Set() },
    ];
    for (const { pattern, automaton } of this.#patterns) {
      if (automaton === undefined) continue;
      classes = classes.flatMap(({ factors, matching }) => [
        { factors: [...factors, { automaton, isNegated: false }], matching: new Set([...matching, pattern]) },
        { factors: [...factors, { automaton, isNegated: true }], matching },
      ]);
      classes = classes.filter(({ factors }) => this.#hasNames(factors));
    }
    const none = { constraints: [], lengths: { min: 0, max: Infinity }, excluded: [] };
    return classes.map(({ factors, matching }) => ({
      matching,
      key: () => grammar.newRule(strings.ofRules(nameRules ?? none, factors)),
    }));
  }

  #hasNames(factors: readonly Factor[]): boolean {
    const { budget } = this.#compiler.grammar;
    const [first] = factors;
    if (factors.every(({ isNegated }) => isNegated) || first === undefined) return true;
    try {
      return budget.ofAutomaton(() => trimmed(intersection(factors, namesStatesMax, budget))) !== undefined;
    } catch (error) {
      if (error instanceof AutomatonTooLarge) return true;
      throw error;
    }
  }

  /** What `propertyNames` says about texts. */
  #nameRules(): ReturnType<typeof rulesOf> | undefined {
    const links = this.#nameLinks();
    if (links.length === 0) return undefined;
    const found = this.#compiler.atoms.resolve(links);
    const path = this.#plain[0]!.path;
    if (found === undefined) return { constraints: [], lengths: { min: 1, max: 0 }, excluded: [] };
    if (found.branches.length > 0) {
      this.#compiler.atoms.report(pointer(path, 'propertyNames'), '`propertyNames` with options is not supported');
    }
    const isText = found.plain.every(
      ({ schema, path: place }) => declaredTypes(schema, place)?.includes('string') ?? true,
    );
    if (!isText) return { constraints: [], lengths: { min: 1, max: 0 }, excluded: [] };
    if (found.plain.some(({ schema }) => schema.enum !== undefined || schema.const !== undefined)) {
      this.#compiler.atoms.report(
        pointer(path, 'propertyNames'),
        '`propertyNames` with so many values is not supported',
      );
    }
    return rulesOf(found.plain);
  }

  #readPatterns(): readonly NamePattern[] {
    const found = new Map<string, NamePattern>();
    for (const { schema, path } of this.#plain) {
      for (const pattern of namesOf(objectOf(schema, 'patternProperties', path))) {
        const place = pointer(pointer(path, 'patternProperties'), pattern);
        try {
          if (!found.has(pattern)) {
            found.set(pattern, { pattern, automaton: this.#compiler.strings.automatonOf(pattern, false) });
          }
        } catch (error) {
          const isKnown = error instanceof RegexError || error instanceof AutomatonTooLarge;
          if (!isKnown) throw error;
          const problem = error instanceof RegexError ? `has ${error.message}` : 'needs too many states';
          this.#compiler.atoms.report(place, `the pattern ${problem}, which is not supported,`);
        }
      }
      if (found.size > patternsMax) {
        throw new SchemaError(pointer(path, 'patternProperties'), `more than ${patternsMax} patterns`, true);
      }
    }
    return [...found.values()];
  }

  #counted(members: readonly Member[], extra: Expression | undefined): Expression {
    let [min, max] = [0, Infinity];
    for (const { schema, path } of this.#plain) {
      const counts = countsOf(schema, 'minProperties', 'maxProperties', path);
      [min, max] = [Math.max(min, counts.min), Math.min(max, counts.max)];
    }
    const requiredCount = members.filter(({ isRequired }) => isRequired).length;
    if (min > max || requiredCount > max || (extra === undefined && min > members.length)) return nothing;
    // The name of an extra member can be written twice, and counts once.
    const isRepeated = min > members.length + 1;
    if (isRepeated) {
      this.#compiler.atoms.report(
        pointer(this.#placeOf('minProperties'), 'minProperties'),
        `\`minProperties\` of ${min} counts names that are written twice`,
      );
    }
    const isMinFree = min <= requiredCount;
    const isMaxFree = max === Infinity || (extra === undefined && max >= members.length);
    if (isMinFree && isMaxFree) return this.#members(members, extra);
    const end = max === Infinity ? min : max;
    if (members.length === 0)
      return this.#filled(this.#extraList(extra, Math.max(1, min), max), min === 0 && requiredCount === 0);
    if ((members.length + 1) * (Math.min(end, members.length) + 1) <= countedMax) {
      return this.#filled(
        this.#countedMembers(members, max, (count) => this.#extrasAfter(extra, count, { min, max, isRepeated })),
        min === 0 && requiredCount === 0,
      );
    }
    const keyword = isMinFree ? 'maxProperties' : 'minProperties';
    this.#compiler.atoms.report(
      pointer(this.#placeOf(keyword), keyword),
      `\`${keyword}\` with so many properties is not supported`,
    );
    return this.#members(members, extra);
  }

  #placeOf(keyword: string): string {
    return (this.#plain.find(({ schema }) => schema[keyword] !== undefined) ?? this.#plain[0]!).path;
  }

  #extraList(extra: Expression | undefined, min: number, max: number): Expression {
    return extra === undefined || max === 0 ? nothing : this.#compiler.grammar.list(extra, min, max);
  }

  #filled(inside: Expression, canBeEmpty: boolean): Expression {
    const { grammar } = this.#compiler;
    const filled = grammar.enclosed('{', inside, '}');
    return canBeEmpty ? choice(grammar.enclosed('{', undefined, '}'), filled) : filled;
  }

  /** Members come in the order of `properties`; then come the others. */
  #members(members: readonly Member[], extra: Expression | undefined): Expression {
    const { grammar } = this.#compiler;
    const { comma } = grammar;
    let tail: Expression = extra === undefined ? empty : repeat(sequence(comma, extra), 0, Infinity);
    let head: Expression = extra === undefined ? nothing : sequence(extra, tail);
    for (let i = members.length - 1; i >= 0; i--) {
      const { expression, isRequired } = members[i]!;
      const begin = sequence(expression, tail);
      head = isRequired ? begin : choice(begin, i % 16 === 15 ? grammar.newRule(head) : head);
      const more = sequence(comma, expression);
      // A rule, because both the tail and the head have it.
      tail = grammar.newRule(sequence(isRequired ? more : optional(more), tail));
    }
    return this.#filled(head, !members.some(({ isRequired }) => isRequired));
  }

  /** A rule for each member and number of members before it. One member or more. */
  #countedMembers(members: readonly Member[], max: number, extras: (count: number) => Expression): Expression {
    const { grammar } = this.#compiler;
    const { comma } = grammar;
    const shared = members.map(({ expression }) => grammar.newRule(expression));
    /** What follows when `count` members were written before member `i`. */
    let following: Expression[] = [];
    const countMax = Math.min(members.length, max);
    for (let i = members.length; i >= 0; i--) {
      const current: Expression[] = [];
      grammar.budget.spendSteps(Math.min(i, countMax));
      for (let count = 0; count <= Math.min(i, countMax); count++) {
        if (i === members.length) {
          current.push(extras(count));
          continue;
        }
        const before = count === 0 ? empty : comma;
        const written = count < countMax ? sequence(before, shared[i]!, following[count + 1] ?? nothing) : nothing;
        const isRequired = members[i]!.isRequired;
        const skipped = isRequired ? nothing : (following[count] ?? nothing);
        current.push(grammar.newRule(choice(written, skipped)));
      }
      following = current;
    }
    return following[0]!;
  }

  /** `isRepeated`: several extra members count for the minimum, although their names can be equal. */
  #extrasAfter(extra: Expression | undefined, count: number, { min, max, isRepeated }: ExtraCounts): Expression {
    const { comma } = this.#compiler.grammar;
    const least = Math.max(0, min - count);
    if (least > 1 && !isRepeated) return nothing;
    const most = max - count;
    if (extra === undefined || most === 0) return least > 0 || count === 0 ? nothing : empty;
    if (count > 0) return repeat(sequence(comma, extra), least, most);
    return this.#extraList(extra, Math.max(1, least), most);
  }
}

const isOpening = (value: unknown): boolean => value !== undefined && value !== false;
