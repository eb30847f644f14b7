import { type Automaton, automatonOfTexts, type Factor, intersection, matches, trimmed } from './automaton.ts';
import { AutomatonTooLarge } from './budget.ts';
import { automatonOfPattern, determinize } from './determinize.ts';
import { anyCharacter, type Expression, nothing, repeat, rule } from './expression.ts';
import { isEncoding, isImplied, patternOfFormat } from './formats.ts';
import type { JsonGrammar } from './json-grammar.ts';
import { type Lengths, type StringForm, stringOfAutomaton, stringOfLength, stringWithBranches } from './json-text.ts';
import { plainForm } from './plain-text.ts';
import { branchesOf, parseRegex, RegexError } from './regex.ts';
import type { Plain, Report } from './schema-atoms.ts';
import { countsOf } from './schema-bounds.ts';
import { pointer, SchemaError } from './schema-keywords.ts';

const statesMax = 3000;
/** What reading a Unicode property costs. */
const stepsOfProperty = 5000;

/** A pattern that a string must match, or must not match. */
interface Constraint {
  readonly pattern: string;
  readonly isNegated: boolean;
  readonly path: string;
  /** The value of `format` that it stands for. */
  readonly format?: string;
}

/** What strings must match. */
export interface StringRules {
  readonly constraints: readonly Constraint[];
  readonly lengths: Lengths;
  readonly excluded: readonly string[];
}

/** As in JSON. */
const quotedForm: StringForm = {
  any: ({ min, max }) => (min === 0 && max === Infinity ? rule('string') : stringOfLength(min, max)),
  ofBranches: stringWithBranches,
  ofAutomaton: stringOfAutomaton,
};

const isFree = ({ min, max }: Lengths): boolean => min === 0 && max === Infinity;

/** Compiles strings, and keeps the automata of patterns. */
export class SchemaStrings {
  readonly #grammar: JsonGrammar;
  readonly #report: Report;
  readonly #properties = new Set<string>();
  readonly #automata = new Map<string, Automaton | undefined>();

  constructor(grammar: JsonGrammar, report: Report) {
    this.#grammar = grammar;
    this.#report = report;
  }

  string(plain: readonly Plain[]): Expression {
    return this.ofRules(rulesOf(plain), []);
  }

  /** Strings that keep the rules and match the other automata. */
  ofRules(rules: StringRules, factors: readonly Factor[], form: StringForm = quotedForm): Expression {
    const { lengths, excluded } = rules;
    if (lengths.min > lengths.max) return nothing;
    const constraints = this.#supported(rules.constraints);
    if (constraints.length + excluded.length + factors.length === 0) return form.any(lengths);
    const alone = factors.length === 0 ? this.#alone(constraints, rules, form) : undefined;
    return alone ?? this.#intersected(constraints, rules, factors, form);
  }

  /**
   * Texts without quotes, of which none has a match of the patterns in `excluded`. `canBranch`: without `<`, a text matches none of
   * these patterns, so a pattern that needs too many states needs no automaton.
   */
  plainText(rules: StringRules, excluded: readonly string[], canBranch: boolean): Expression {
    const factors = excluded
      .map((pattern) => this.automatonOf(pattern, true))
      .filter((automaton) => automaton !== undefined)
      .map((automaton) => ({ automaton, isNegated: true }));
    const constraints = this.#supported(rules.constraints);
    const alone = canBranch ? this.#alone(constraints, rules, plainForm) : undefined;
    if (alone === undefined) return this.ofRules(rules, factors, plainForm);
    return this.#tryAll(constraints, rules, factors, plainForm) ?? alone;
  }

  /** One pattern without other rules, if it needs no automaton. */
  #alone(constraints: readonly Constraint[], { lengths, excluded }: StringRules, form: StringForm) {
    const [only] = constraints;
    if (constraints.length !== 1 || only!.isNegated || excluded.length > 0 || !isFree(lengths)) return undefined;
    const branches = branchesOf(this.#parse(only!.pattern, false));
    return branches && form.ofBranches(branches);
  }

  /** Whether a text has a match of the pattern; undefined: not known. */
  isFound(pattern: string, value: string): boolean | undefined {
    try {
      const automaton = this.automatonOf(pattern, false);
      return automaton !== undefined && matches(automaton, value);
    } catch (error) {
      if (error instanceof AutomatonTooLarge || error instanceof RegexError) return undefined;
      throw error;
    }
  }

  /** Undefined: no text matches. Throws AutomatonTooLarge or RegexError. */
  automatonOf(pattern: string, isNegated: boolean): Automaton | undefined {
    const key = `${isNegated}:${pattern}`;
    if (this.#automata.has(key)) return this.#automata.get(key);
    const { budget } = this.#grammar;
    const parsed = this.#parse(pattern, isNegated);
    const automaton = budget.ofAutomaton(() => automatonOfPattern(parsed, budget, statesMax));
    this.#automata.set(key, automaton);
    return automaton;
  }

  #parse(pattern: string, isNegated: boolean): Expression {
    const { budget } = this.#grammar;
    return parseRegex(pattern, {
      isNegated,
      onProperty: (name) => {
        if (!this.#properties.has(name)) budget.spendSteps(stepsOfProperty);
        this.#properties.add(name);
      },
    });
  }

  /** Without patterns that have an unsupported part, which is reported. */
  #supported(constraints: readonly Constraint[]): readonly Constraint[] {
    return constraints.filter(({ pattern, path, isNegated }) => {
      try {
        this.#parse(pattern, isNegated);
        return true;
      } catch (error) {
        if (!(error instanceof RegexError)) throw error;
        const problem = `the pattern has ${error.message}, which is not supported,`;
        if (isPattern(pattern)) this.#report(path, problem);
        else throw new SchemaError(path, problem);
        return false;
      }
    });
  }

  /** If all constraints together need too many states, some are left out: formats, then lengths, then all but the first pattern. */
  #intersected(
    constraints: readonly Constraint[],
    rules: StringRules,
    others: readonly Factor[],
    form: StringForm,
  ): Expression {
    const patterns = constraints.filter(({ format }) => format === undefined);
    const isFormatOnly = patterns.length === 0;
    const all = this.#tryAll(constraints, rules, others, form);
    // Texts of a format are a part of those that have the format, so they may be others than the pattern's.
    const hasNone = all === nothing && patterns.length < constraints.length && !isFormatOnly;
    if (all !== undefined && !hasNone) return all;
    const free: StringRules = { ...rules, lengths: { min: 0, max: Infinity }, excluded: [] };
    const problem = hasNone ? 'have no common text' : 'need too many states together';
    const [first] = isFormatOnly ? constraints : patterns;
    this.#leaveOut(constraints, problem, form === quotedForm ? others : []);
    const fewer = isFormatOnly ? undefined : this.#tryAll(patterns, rules, others, form);
    const shorter = fewer ?? this.#tryAll(patterns, free, others, form);
    if (shorter !== undefined) return shorter;
    return (first && this.#alone([first], free, form)) ?? form.any(rules.lengths);
  }

  /** Names of objects cannot be told apart without their automata. */
  #leaveOut(constraints: readonly Constraint[], problem: string, others: readonly Factor[]): void {
    const path = constraints[0]?.path ?? '#';
    if (others.length > 0) throw new SchemaError(path, 'the names of the object need too many states', true);
    const names = constraints.map(({ format }) => (format === undefined ? '`pattern`' : `the format \`${format}\``));
    this.#report(path, `${[...new Set(names), 'the keywords beside it'].join(' and ')} ${problem}`);
  }

  /** Undefined: it is too large. */
  #tryAll(
    constraints: readonly Constraint[],
    rules: StringRules,
    others: readonly Factor[],
    form: StringForm,
  ): Expression | undefined {
    const { budget } = this.#grammar;
    try {
      return budget.ofAutomaton(() => this.#all(constraints, rules, others, form));
    } catch (error) {
      if (error instanceof AutomatonTooLarge || error instanceof RegexError) return undefined;
      throw error;
    }
  }

  #all(
    constraints: readonly Constraint[],
    { lengths, excluded }: StringRules,
    others: readonly Factor[],
    form: StringForm,
  ): Expression {
    const { budget, share } = this.#grammar;
    const factors: Factor[] = [...others];
    for (const { pattern, isNegated } of constraints) {
      const automaton = this.automatonOf(pattern, isNegated);
      if (automaton !== undefined) factors.push({ automaton, isNegated });
      else if (!isNegated) return nothing;
    }
    if (excluded.length > 0) factors.push({ automaton: automatonOfTexts(excluded, budget), isNegated: true });
    if (factors.every(({ isNegated }) => isNegated)) {
      factors.unshift({ automaton: determinize(anyText, budget, statesMax)!, isNegated: false });
    }
    // Lists of texts have many states, and few combinations of states.
    const inLists = factors.reduce(
      (sum, { automaton, isNegated }) => sum + (isNegated ? automaton.accepts.length : 0),
      0,
    );
    const all = trimmed(intersection(factors, statesMax + inLists, budget));
    return all === undefined ? nothing : form.ofAutomaton(all, lengths, share, budget);
  }
}

const anyText = repeat(anyCharacter, 0, Infinity);

/** Whether JavaScript can read the pattern. */
function isPattern(pattern: string): boolean {
  try {
    new RegExp(pattern, 'u');
    return true;
  } catch {
    return false;
  }
}

/** What the schemas say together about strings. */
export function rulesOf(plain: readonly Plain[]): StringRules {
  let lengths: Lengths = { min: 0, max: Infinity };
  const constraints = new Map<string, Constraint>();
  const excluded: string[] = [];
  const add = (constraint: Constraint): unknown =>
    constraints.set(`${constraint.isNegated}:${constraint.pattern}`, constraint);
  for (const { schema, path, facts } of plain) {
    const { min, max } = countsOf(schema, 'minLength', 'maxLength', path);
    lengths = { min: Math.max(lengths.min, min), max: Math.min(lengths.max, max) };
    const { pattern, format } = schema;
    if (pattern !== undefined && typeof pattern !== 'string')
      throw new SchemaError(pointer(path, 'pattern'), 'expected a text');
    if (pattern !== undefined && !isImplied(pattern, format))
      add({ pattern, isNegated: false, path: pointer(path, 'pattern') });
    // Base64 is an encoding in JSON Schema, and a format in OpenAPI.
    for (const keyword of ['format', 'contentEncoding'] as const) {
      const name = schema[keyword];
      const formatted = typeof name === 'string' && (keyword === 'format' || isEncoding(name)) && patternOfFormat(name);
      if (typeof formatted === 'string')
        add({ pattern: formatted, isNegated: false, path: pointer(path, keyword), format: name as string });
    }
    if (facts?.notPattern !== undefined) add({ pattern: facts.notPattern, isNegated: true, path });
    for (const value of facts?.notValues ?? []) if (typeof value === 'string') excluded.push(value);
  }
  return { constraints: [...constraints.values()], lengths, excluded };
}
