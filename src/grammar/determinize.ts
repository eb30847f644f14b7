import { AssertionError } from '../base/assert.ts';
import {
  type Alphabet,
  type Automaton,
  alphabetOf,
  type Factor,
  intersection,
  minimized,
  symbolsIn,
  trimmed,
} from './automaton.ts';
import { AutomatonTooLarge, type Budget } from './budget.ts';
import {
  anyCharacter,
  atEnd,
  atStart,
  type CodeRange,
  type Expression,
  repeat,
  sequence,
  sequenceOf,
} from './expression.ts';
import { RegexError } from './regex.ts';

/**
 * Makes a deterministic automaton of an expression, with its assertions.
 *
 * A *place* is a position in the pattern and all that follows it. After some characters, the text may be at a combination
 * of places: `(a and not b) or c`. Characters move all places, so a combination becomes another one, which is a state of
 * the automaton. Without assertions, combinations are sets of places, which is the subset construction. `(?=x)` at a
 * place means: the place after it, and the place `x`. A look-behind is known from a second combination, which follows
 * the text from its start.
 */

/** A disjunction of conjunctions of literals. A literal is the id of a place times two, plus 1 if it is negated. */
type Conjunction = readonly number[];
type Combination = readonly Conjunction[];

const never: Combination = [];
const always: Combination = [[]];

type Node =
  | { readonly id: number; readonly kind: 'symbols'; readonly members: Uint8Array }
  | { readonly id: number; readonly kind: 'sequence' | 'choice'; readonly parts: readonly Node[] }
  | { readonly id: number; readonly kind: 'repeat'; readonly part: Node; readonly min: number; readonly max: number }
  | { readonly id: number; readonly kind: 'look'; readonly body: Node; readonly isNegative: boolean }
  | { readonly id: number; readonly kind: 'behind'; readonly observer: number; readonly isNegative: boolean };

interface Place {
  readonly id: number;
  readonly node: Node | 'end' | 'anything';
  readonly rest: Place | undefined;
}

/** Calls of `#expand` inside each other: a bound for the stack. */
const depthMax = 1000;

/**
 * The texts of the expression; with `isSearch`, the texts that have such a text somewhere.
 * @throws AutomatonTooLarge, LimitError, and RegexError for assertions that are not supported.
 */
export function determinize(
  expression: Expression,
  budget: Budget,
  statesMax: number,
  isSearch = false,
): Automaton | undefined {
  const found = trimmed(new Determinizer(expression, budget, isSearch).run(statesMax));
  return found && minimized(found);
}

/**
 * The texts that have a match of a pattern. Look-aheads at its start are automata of their own, because their
 * combinations with all that follows are many: `^(?=.*[0-9])(?=.*[a-z]).{8,}$`.
 * @throws as `determinize`
 */
export function automatonOfPattern(pattern: Expression, budget: Budget, statesMax: number): Automaton | undefined {
  const parts = pattern.kind === 'sequence' ? pattern.parts : [pattern];
  const rest = parts.findIndex((part, i) => i > 0 && (part.kind !== 'look' || part.isBehind || part === atEnd));
  if (parts[0] !== atStart || rest <= 1) return determinize(pattern, budget, statesMax, true);
  const factors: Factor[] = [];
  const add = (expression: Expression, isNegated: boolean): boolean => {
    const automaton = determinize(sequence(atStart, expression), budget, statesMax, true);
    if (automaton !== undefined) factors.push({ automaton, isNegated });
    return automaton !== undefined || isNegated;
  };
  const looks = parts.slice(1, rest).filter((part) => part.kind === 'look');
  const canMatch = add(sequenceOf(parts.slice(rest)), false) && looks.every((part) => add(part.body, part.isNegative));
  const found = canMatch ? trimmed(intersection(factors, statesMax, budget)) : undefined;
  return found && minimized(found);
}

class Determinizer {
  readonly #alphabet: Alphabet;
  readonly #budget: Budget;
  readonly #start: Place;
  readonly #end: Place = { id: 0, node: 'end', rest: undefined };
  readonly #anything: Place = { id: 1, node: 'anything', rest: undefined };
  readonly #nodes = new Map<string, Node>();
  readonly #places = new Map<string, Place>();
  readonly #byId: Place[] = [this.#end, this.#anything];
  /** What look-behinds search for: the place that they end at decides. */
  readonly #observed: Place[] = [];
  /** The results of the look-behinds at the position that is expanded. */
  #seen: boolean[] = [];
  #known = new Map<number, Combination>();
  readonly #knownOf = new Map<string, Map<number, Combination>>();
  /** Places that are being expanded, with their depth. */
  readonly #open = new Map<number, number>();
  /** The smallest depth of an open place that was met again. */
  #metAgain = Infinity;

  constructor(expression: Expression, budget: Budget, isSearch: boolean) {
    this.#budget = budget;
    const classes = new Map<string, readonly CodeRange[]>();
    collectClasses(expression, classes);
    collectClasses(anyCharacter, classes);
    this.#alphabet = alphabetOf([...classes.values()], budget);
    const root = this.#node(expression, false);
    const end = isSearch ? this.#anything : this.#end;
    const place = this.#place(root, end);
    this.#start = isSearch ? this.#place(this.#node(anyText, false), place) : place;
  }

  run(statesMax: number): Automaton {
    const { count } = this.#alphabet;
    const numbers = new Map<string, number>();
    const states: { readonly main: Combination; readonly observers: readonly Combination[] }[] = [];
    const accepts: number[] = [];
    const next: number[] = [];
    const numberOf = (main: Combination, observers: readonly Combination[]): number => {
      const key = [main, ...observers].map(keyOf).join('/');
      let state = numbers.get(key);
      if (state === undefined) {
        if (states.length >= statesMax) throw new AutomatonTooLarge();
        state = states.push({ main, observers }) - 1;
        numbers.set(key, state);
        accepts.push(this.#canEnd(main) ? 1 : 0);
      }
      return state;
    };
    const begun = this.#observe((place) => this.#expand(place));
    numberOf(this.#expand(this.#start), begun);
    for (let state = 0; state < states.length; state++) {
      const { main, observers } = states[state]!;
      for (let symbol = 0; symbol < count; symbol++) {
        const moved = this.#observe((_, i) => this.#move(observers[i]!, symbol));
        const target = this.#move(main, symbol);
        next.push(target.length === 0 ? -1 : numberOf(target, moved));
      }
    }
    return { alphabet: this.#alphabet, next: Int32Array.from(next), accepts: Uint8Array.from(accepts) };
  }

  /** Finds the results of the look-behinds at a position, the inner ones first, because the outer ones may need them. */
  #observe(follow: (place: Place, i: number) => Combination): readonly Combination[] {
    this.#seen = [];
    const combinations = this.#observed.map((place, i) => {
      this.#useSeen();
      const combination = follow(place, i);
      this.#seen.push(this.#canEnd(combination));
      return combination;
    });
    this.#useSeen();
    return combinations;
  }

  /** Expansions depend on the results of look-behinds. */
  #useSeen(): void {
    const key = this.#seen.map(Number).join('');
    let known = this.#knownOf.get(key);
    if (known === undefined) {
      known = new Map();
      this.#knownOf.set(key, known);
    }
    this.#known = known;
  }

  #canEnd(combination: Combination): boolean {
    const isTrue = (literal: number): boolean => (literal >> 1 === this.#end.id) !== ((literal & 1) === 1);
    return combination.some((literals) => literals.every(isTrue));
  }

  #move(combination: Combination, symbol: number): Combination {
    const results = combination.map((literals) => {
      let result = always;
      for (const literal of literals) {
        if (result.length === 0) break;
        const moved = this.#moveOne(this.#byId[literal >> 1]!, symbol);
        result = this.#and(result, (literal & 1) === 1 ? this.#not(moved) : moved);
      }
      return result;
    });
    return this.#or(results);
  }

  #moveOne({ node, rest }: Place, symbol: number): Combination {
    this.#budget.spendSteps(0.25);
    if (typeof node === 'string' || node.kind !== 'symbols' || node.members[symbol] === 0) return never;
    return this.#expand(rest!);
  }

  /** What holds at a place before the next character is read: the places that read it. */
  #expand(place: Place): Combination {
    if (place === this.#anything) return always;
    const known = this.#known.get(place.id);
    if (known !== undefined) return known;
    const depth = this.#open.size;
    const openDepth = this.#open.get(place.id);
    if (openDepth !== undefined) {
      // A round of a repetition that reads nothing adds nothing.
      this.#metAgain = Math.min(this.#metAgain, openDepth);
      return never;
    }
    if (depth > depthMax) throw new AutomatonTooLarge();
    this.#budget.spendSteps(1);
    const metBefore = this.#metAgain;
    this.#metAgain = Infinity;
    this.#open.set(place.id, depth);
    const result = this.#expandNode(place);
    this.#open.delete(place.id);
    // The result is complete only if no place below has met one that is still open.
    if (this.#metAgain >= depth) this.#known.set(place.id, result);
    this.#metAgain = Math.min(metBefore, this.#metAgain);
    return result;
  }

  #expandNode({ id, node, rest }: Place): Combination {
    if (node === 'end' || node === 'anything' || node.kind === 'symbols') return [[id * 2]];
    const after = rest!;
    switch (node.kind) {
      case 'sequence': {
        let place = after;
        for (let i = node.parts.length - 1; i >= 0; i--) place = this.#place(node.parts[i]!, place);
        return this.#expand(place);
      }
      case 'choice':
        return this.#or(node.parts.map((part) => this.#expand(this.#place(part, after))));
      case 'repeat': {
        const { part, min, max } = node;
        if (max === 0) return this.#expand(after);
        const again = this.#place(this.#repeatNode(part, Math.max(0, min - 1), max - 1), after);
        const once = this.#expand(this.#place(part, again));
        return min > 0 ? once : this.#or([once, this.#expand(after)]);
      }
      case 'look': {
        const inside = this.#expand(this.#place(node.body, this.#anything));
        return this.#and(node.isNegative ? this.#not(inside) : inside, this.#expand(after));
      }
      case 'behind':
        return this.#seen[node.observer] === node.isNegative ? never : this.#expand(after);
    }
  }

  #place(node: Node, rest: Place): Place {
    const key = `${node.id},${rest.id}`;
    let place = this.#places.get(key);
    if (place === undefined) {
      this.#budget.spendSteps(0.5);
      place = { id: this.#byId.length, node, rest };
      this.#byId.push(place);
      this.#places.set(key, place);
    }
    return place;
  }

  #node(expression: Expression, isBehind: boolean): Node {
    switch (expression.kind) {
      case 'text': {
        const letters = [...expression.text].map((letter) => this.#symbols(codeRange(letter)));
        return letters.length === 1 ? letters[0]! : this.#parent('sequence', letters);
      }
      case 'class':
        return this.#symbols(expression.ranges);
      case 'sequence':
        return this.#parent(
          'sequence',
          expression.parts.map((part) => this.#node(part, isBehind)),
        );
      case 'choice':
        return this.#parent(
          'choice',
          expression.options.map((part) => this.#node(part, isBehind)),
        );
      case 'repeat':
        return this.#repeatNode(this.#node(expression.part, isBehind), expression.min, expression.max);
      case 'look': {
        const { isNegative } = expression;
        if (!expression.isBehind) {
          if (isBehind) throw new RegexError('a look-ahead inside of a look-behind');
          const body = this.#node(expression.body, false);
          return this.#intern(`look:${body.id}:${isNegative}`, (id) => ({ id, kind: 'look', body, isNegative }));
        }
        const body = this.#node(expression.body, true);
        const observer = this.#observerOf(this.#place(this.#node(anyText, true), this.#place(body, this.#end)));
        return this.#intern(`behind:${observer}:${isNegative}`, (id) => ({ id, kind: 'behind', observer, isNegative }));
      }
      default:
        throw new AssertionError(`a pattern has no ${expression.kind}`);
    }
  }

  #observerOf(place: Place): number {
    const known = this.#observed.indexOf(place);
    return known === -1 ? this.#observed.push(place) - 1 : known;
  }

  #symbols(ranges: readonly CodeRange[]): Node {
    const members = symbolsIn(this.#alphabet, ranges);
    return this.#intern(`symbols:${members.join('')}`, (id) => ({ id, kind: 'symbols', members }));
  }

  #parent(kind: 'sequence' | 'choice', parts: readonly Node[]): Node {
    return this.#intern(`${kind}:${parts.map(({ id }) => id).join()}`, (id) => ({ id, kind, parts }));
  }

  #repeatNode(part: Node, min: number, max: number): Node {
    return this.#intern(`repeat:${part.id}:${min}:${max}`, (id) => ({ id, kind: 'repeat', part, min, max }));
  }

  #intern(key: string, make: (id: number) => Node): Node {
    let node = this.#nodes.get(key);
    if (node === undefined) {
      node = make(this.#nodes.size);
      this.#nodes.set(key, node);
    }
    return node;
  }

  #or(combinations: readonly Combination[]): Combination {
    if (combinations.length === 1) return combinations[0]!;
    const found = new Map<string, Conjunction>();
    for (const combination of combinations) {
      this.#budget.spendSteps(combination.length / 4);
      for (const literals of combination) {
        if (literals.length === 0) return always;
        found.set(literals.join(), literals);
      }
    }
    return sorted(found);
  }

  #and(a: Combination, b: Combination): Combination {
    if (a === always || b === never) return b;
    if (b === always || a === never) return a;
    const found = new Map<string, Conjunction>();
    for (const left of a) {
      for (const right of b) {
        const literals = joined(left, right);
        this.#budget.spendSteps((left.length + right.length) / 2);
        if (literals !== undefined) found.set(literals.join(), literals);
      }
    }
    return withoutImplied(sorted(found));
  }

  #not(combination: Combination): Combination {
    let result = always;
    for (const literals of combination)
      result = this.#and(
        result,
        literals.map((literal) => [literal ^ 1]),
      );
    return result;
  }
}

const anyText = repeat(anyCharacter, 0, Infinity);

const codeRange = (letter: string): CodeRange[] => [{ first: letter.codePointAt(0)!, last: letter.codePointAt(0)! }];

function collectClasses(expression: Expression, found: Map<string, readonly CodeRange[]>): void {
  const add = (ranges: readonly CodeRange[]): unknown =>
    found.set(ranges.map(({ first, last }) => `${first}-${last}`).join(), ranges);
  if (expression.kind === 'text') for (const letter of expression.text) add(codeRange(letter));
  else if (expression.kind === 'class') add(expression.ranges);
  else if (expression.kind === 'sequence') for (const part of expression.parts) collectClasses(part, found);
  else if (expression.kind === 'choice') for (const part of expression.options) collectClasses(part, found);
  else if (expression.kind === 'repeat') collectClasses(expression.part, found);
  else if (expression.kind === 'look') collectClasses(expression.body, found);
}

const keyOf = (combination: Combination): string => combination.map((literals) => literals.join()).join('|');

/** Equal sets of conjunctions have one order. */
function sorted(found: ReadonlyMap<string, Conjunction>): Combination {
  if (found.size === 0) return never;
  if (found.size === 1) return [...found.values()];
  return [...found].sort(([a], [b]) => (a < b ? -1 : 1)).map(([, literals]) => literals);
}

/** Undefined if a literal and its negation are in it. */
function joined(a: Conjunction, b: Conjunction): Conjunction | undefined {
  const all = [...new Set([...a, ...b])].sort((x, y) => x - y);
  for (let i = 1; i < all.length; i++) if (all[i - 1] === (all[i]! ^ 1)) return undefined;
  return all;
}

/** A conjunction that has all literals of another one adds nothing. */
function withoutImplied(combination: Combination): Combination {
  if (combination.length < 2 || combination.length > 32) return combination;
  return combination.filter((literals, i) =>
    combination.every(
      (other, j) => i === j || other.length >= literals.length || !other.every((it) => literals.includes(it)),
    ),
  );
}
