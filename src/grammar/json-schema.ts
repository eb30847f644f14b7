import { choiceOf, type Expression, nothing, rule, text } from './expression.ts';
import { arrayOf } from './json-array.ts';
import type { JsonGrammar } from './json-grammar.ts';
import { objectOfParts } from './json-object.ts';
import { type Conjunct, type Plain, type Requirements, SchemaAtoms } from './schema-atoms.ts';
import {
  allTypes,
  declaredTypes,
  keyOfValue,
  meantTypes,
  pointer,
  type Schema,
  SchemaError,
  type TypeName,
} from './schema-keywords.ts';
import { numberOfParts } from './schema-number.ts';
import { isEmpty, type Outline } from './schema-outline.ts';
import { SchemaStrings } from './schema-string.ts';
import { ValueChecker } from './schema-value.ts';

/**
 * Compiles a JSON schema. A value must match a set of atoms (`SchemaAtoms`). Each set becomes one rule, which all places
 * with this set use, so recursion and repeated combinations end. Rules are built from a list, without recursion.
 */
export class SchemaCompiler {
  readonly grammar: JsonGrammar;
  readonly atoms: SchemaAtoms;
  readonly strings: SchemaStrings;
  readonly values: ValueChecker;
  readonly #rules = new Map<string, Expression>();
  readonly #unbuilt: { readonly name: string; readonly requirements: Requirements }[] = [];

  constructor(root: Schema, grammar: JsonGrammar, isStrict: boolean) {
    this.grammar = grammar;
    const { budget } = grammar;
    const report = (path: string, problem: string): void => {
      if (isStrict) throw new SchemaError(path, problem);
      grammar.note(`${problem} at ${path}`);
    };
    this.atoms = new SchemaAtoms(root, report, (steps) => budget.spendSteps(steps));
    this.strings = new SchemaStrings(grammar, report);
    this.values = new ValueChecker(
      this.atoms,
      (pattern, value) => this.strings.isFound(pattern, value),
      () => budget.spendSteps(1),
    );
  }

  compile(root: Schema): Expression {
    const expression = this.valueOf([this.atoms.link(root, '#')]);
    this.buildRules();
    return expression;
  }

  /** Builds the rules that `valueOf` has named. */
  buildRules(): void {
    for (let next = this.#unbuilt.pop(); next !== undefined; next = this.#unbuilt.pop()) {
      this.grammar.rules.set(next.name, this.#build(next.requirements));
    }
  }

  /** The ways to match all of these, without branches; undefined: they are more than `max`. */
  alternativesOf(conjuncts: readonly Conjunct[], max: number): readonly (readonly Plain[])[] | undefined {
    const found: (readonly Plain[])[] = [];
    const open: (readonly Conjunct[])[] = [conjuncts];
    for (let steps = 0; open.length > 0; steps++) {
      if (steps > 4 * max || found.length > max) return undefined;
      const requirements = this.#narrowed(open.pop()!);
      if (requirements === undefined) continue;
      const { plain, branches } = requirements;
      const [first, ...others] = branches;
      if (first === undefined) found.push(plain);
      else open.push(...first.options.map((option) => [...plain, ...others, ...option]).reverse());
    }
    return found;
  }

  /** Values that match all of these. */
  valueOf(conjuncts: readonly Conjunct[]): Expression {
    const requirements = this.#narrowed(conjuncts);
    if (requirements === undefined) return nothing;
    const { plain, branches } = requirements;
    if (plain.length + branches.length === 0) return this.grammar.value;
    const key = [...plain, ...branches]
      .map(({ id }) => id)
      .sort((a, b) => a - b)
      .join();
    const known = this.#rules.get(key);
    if (known !== undefined) return known;
    this.grammar.budget.spendSchema();
    this.grammar.budget.spendSteps(plain.length + branches.length);
    const types = branches.length > 0 ? [] : this.typesOf(plain);
    const isFlat = branches.length === 0 && !types.includes('object') && !types.includes('array');
    const expression = isFlat ? this.#flat(requirements) : this.grammar.declareRule();
    this.#rules.set(key, expression);
    if (!isFlat && expression.kind === 'rule') this.#unbuilt.push({ name: expression.name, requirements });
    return expression;
  }

  /** Chooses the options of branches whose other options contradict the rest. So conditions that exclude each other stay few. */
  #narrowed(conjuncts: readonly Conjunct[]): Requirements | undefined {
    const { atoms } = this;
    let found = atoms.resolve(conjuncts);
    for (let isChanged = true; found !== undefined && isChanged; ) {
      isChanged = false;
      const { plain, branches }: Requirements = found;
      const outline = atoms.outlines.ofPlain(plain);
      // A schema that contradicts itself is an error, which compiling it finds.
      if (isEmpty(outline) && plain.length + branches.length > 1) return undefined;
      if (branches.length === 0) break;
      const chosen = branches.flatMap((branch): Conjunct[] => {
        const possible = branch.options.filter((option) => this.#isPossible(option, outline));
        if (possible.length !== 1) return possible.length === 0 ? [atoms.link(false, branch.path)] : [branch];
        isChanged = true;
        return [...possible[0]!];
      });
      found = atoms.resolve([...plain, ...chosen]);
    }
    return found;
  }

  #isPossible(option: readonly Conjunct[], outline: Outline): boolean {
    const other = this.atoms.outlines.of(option);
    return other !== undefined && !this.atoms.outlines.areApart(outline, other);
  }

  /** All values that match; undefined if there may be more than `max`. */
  finiteValues(conjuncts: readonly Conjunct[], max: number): readonly unknown[] | undefined {
    const found = this.atoms.resolve(conjuncts);
    if (found === undefined) return [];
    const lists = found.plain.map(({ schema, path }) => valuesOf(schema, path));
    const hasBooleans = found.plain.some(({ schema }) => schema.type === 'boolean');
    const values = lists.find((list) => list !== undefined) ?? (hasBooleans ? [true, false] : undefined);
    if (values === undefined || values.length > max) return undefined;
    return [...this.#matching(values, [...found.plain, ...found.branches]).values()];
  }

  /** By their keys. */
  #matching(values: readonly unknown[], conjuncts: readonly Conjunct[]): ReadonlyMap<string, unknown> {
    const matching = new Map<string, unknown>();
    for (const value of values) {
      const key = keyOfValue(value);
      if (!matching.has(key) && this.values.accepts(value, conjuncts)) matching.set(key, value);
    }
    return matching;
  }

  /** Small expressions are repeated where they are used. */
  #flat(requirements: Requirements): Expression {
    const expression = this.#build(requirements);
    const isSmall = expression === nothing || expression.kind === 'rule' || expression.kind === 'text';
    return isSmall ? expression : this.grammar.newRule(expression);
  }

  #build({ plain, branches }: Requirements): Expression {
    const [first, ...others] = branches;
    if (first === undefined) return this.#plain(plain);
    return choiceOf(first.options.map((option) => this.valueOf([...plain, ...others, ...option])));
  }

  #plain(plain: readonly Plain[]): Expression {
    const constants = this.constantsOf(plain);
    if (constants !== undefined) return choiceOf(constants.map((value) => this.grammar.constant(value)));
    return this.ofTypes(this.typesOf(plain), plain);
  }

  /** The values of `enum` and `const` that match all of these; undefined: no list says the values. */
  constantsOf(plain: readonly Plain[]): readonly unknown[] | undefined {
    const lists = plain.map(({ schema, path }) => valuesOf(schema, path)).filter((list) => list !== undefined);
    const shortest = lists.sort((a, b) => a.length - b.length)[0];
    if (shortest === undefined) return undefined;
    const values = [...this.#matching(shortest, plain).values()];
    if (values.length > 0 || plain.length > 1) return values;
    throw new SchemaError(pointer(plain[0]!.path, 'enum'), 'no value is allowed');
  }

  ofTypes(types: readonly TypeName[], plain: readonly Plain[]): Expression {
    return choiceOf(types.map((type) => this.#ofType(type, plain)));
  }

  #ofType(type: TypeName, plain: readonly Plain[]): Expression {
    const excluded = plain.flatMap(({ facts }) => facts?.notValues ?? []);
    if (type === 'object') return objectOfParts(plain, this);
    if (type === 'array') return arrayOf(plain, this);
    if (type === 'string') return this.strings.string(plain);
    if (type === 'null') return excluded.includes(null) ? nothing : text('null');
    if (type !== 'boolean') return numberOfParts(plain, type === 'integer', this);
    const values = [true, false].filter((value) => !excluded.includes(value));
    return values.length === 2 ? rule('boolean') : choiceOf(values.map((value) => text(String(value))));
  }

  /** Without `type`, the types that the keywords of the schemas speak of. */
  typesOf(plain: readonly Plain[]): readonly TypeName[] {
    let types: readonly TypeName[] | undefined;
    for (const { schema, path } of plain) {
      const declared = declaredTypes(schema, path);
      if (declared !== undefined) types = types === undefined ? declared : commonTypes(types, declared);
    }
    if (types !== undefined) return [...new Set(types)];
    const meant = new Set(plain.flatMap(({ schema, facts }) => [...meantTypes(schema), ...typesOfFacts(facts)]));
    const found = [...meant];
    return found.length > 0 ? found : allTypes.filter((type) => type !== 'integer');
  }
}

function valuesOf(schema: Plain['schema'], path: string): readonly unknown[] | undefined {
  if (schema.const !== undefined) return [schema.const];
  if (schema.enum === undefined) return undefined;
  if (Array.isArray(schema.enum)) return schema.enum;
  throw new SchemaError(pointer(path, 'enum'), 'expected a list');
}

function typesOfFacts(facts: Plain['facts']): readonly TypeName[] {
  if (facts === undefined) return [];
  if (facts.absent !== undefined || facts.member !== undefined) return ['object'];
  if (facts.element !== undefined || facts.each !== undefined || facts.some !== undefined) return ['array'];
  if (facts.notPattern !== undefined) return ['string'];
  return facts.notMultipleOf === undefined ? [] : ['number'];
}

const commonTypes = (a: readonly TypeName[], b: readonly TypeName[]): TypeName[] => [
  ...a.filter((type) => b.includes(type) || (type === 'integer' && b.includes('number'))),
  ...b.filter((type) => type === 'integer' && a.includes('number')),
];
