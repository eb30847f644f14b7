import { type Automaton, rangesOf } from './automaton.ts';
import { AutomatonTooLarge, type Budget } from './budget.ts';
import {
  type AutomatonState,
  type CodeRange,
  characters,
  choice,
  choiceOf,
  classOf,
  codePointMax,
  type Expression,
  empty,
  repeat,
  sequence,
  sequenceOf,
  text,
  without,
} from './expression.ts';
import type { RegexBranch } from './regex.ts';

const hex = characters('09', 'af', 'AF');
const special: readonly CodeRange[] = [
  { first: 0, last: 0x1f },
  { first: 0x22, last: 0x22 },
  { first: 0x5c, last: 0x5c },
];
const all: readonly CodeRange[] = [{ first: 0, last: codePointMax }];
/** Characters that need no escape. */
const plainRanges = without(all, special);
export const plainCharacter = classOf(plainRanges);

/** One character of a JSON string. Surrogates come in pairs only, so that every string is well-formed. */
export const stringCharacter = choice(
  plainCharacter,
  sequence(text('\\'), characters('"', '\\', '/', 'b', 'f', 'n', 'r', 't')),
  sequence(text('\\u'), characters('09', 'ac', 'AC', 'ef', 'EF'), hex, hex, hex),
  sequence(text('\\u'), characters('d', 'D'), characters('07'), hex, hex),
  sequence(
    sequence(text('\\u'), characters('d', 'D'), characters('89', 'ab', 'AB'), hex, hex),
    sequence(text('\\u'), characters('d', 'D'), characters('cf', 'CF'), hex, hex),
  ),
);

const quoted = (content: Expression): Expression => sequence(text('"'), content, text('"'));

export const stringOfLength = (min: number, max: number): Expression => quoted(repeat(stringCharacter, min, max));

/** The texts of the alternatives of a pattern, which may be anywhere in the string, as JSON Schema's `pattern` means it. */
export function stringWithBranches(branches: readonly RegexBranch[]): Expression {
  const anyText = repeat(stringCharacter, 0, Infinity);
  return quoted(
    choiceOf(
      branches.map(({ body, isAtStart, isAtEnd }) =>
        sequence(isAtStart ? empty : anyText, asStringContent(body), isAtEnd ? empty : anyText),
      ),
    ),
  );
}

/** The texts of an expression, written as in a JSON string. */
function asStringContent(expression: Expression): Expression {
  switch (expression.kind) {
    case 'text':
      return text(JSON.stringify(expression.text).slice(1, -1));
    case 'class': {
      const plain = without(expression.ranges, special);
      const escaped = without(expression.ranges, plain);
      const options: Expression[] = plain.length === 0 ? [] : [classOf(plain)];
      for (const { first, last } of escaped) {
        for (let code = first; code <= last; code++) options.push(text(escapeOf(code)));
      }
      return choiceOf(options);
    }
    case 'sequence':
      return sequenceOf(expression.parts.map(asStringContent));
    case 'choice':
      return choiceOf(expression.options.map(asStringContent));
    case 'repeat':
      return { ...expression, part: asStringContent(expression.part) };
    default:
      return expression;
  }
}

const escapeOf = (code: number): string => JSON.stringify(String.fromCharCode(code)).slice(1, -1);

/** Keeps one copy of an expression that many states use. */
export type Share = (key: string, make: () => Expression) => Expression;

/** Counts of characters. */
export interface Lengths {
  readonly min: number;
  readonly max: number;
}

/** How strings are written. */
export interface StringForm {
  any(lengths: Lengths): Expression;
  /** Of the alternatives of a pattern. */
  ofBranches(branches: readonly RegexBranch[]): Expression;
  /** Throws AutomatonTooLarge. */
  ofAutomaton(automaton: Automaton, lengths: Lengths, share: Share, budget: Budget): Expression;
}

/** Strings longer than this many states have no pattern: a smaller maximum is used instead. */
const lengthStatesMax = 2000;

/**
 * The strings that an automaton matches, with a number of characters. Each character is written in one way. The maximum
 * can become smaller.
 * @throws AutomatonTooLarge
 */
export function stringOfAutomaton(
  automaton: Automaton,
  { min, max }: Lengths,
  share: Share,
  budget: Budget,
): Expression {
  return quoted(statesOf(new StringStates(automaton, share, budget), { min, max }));
}

/** The same without quotes and escapes. */
export function textOfAutomaton(automaton: Automaton, lengths: Lengths, budget: Budget): Expression {
  return statesOf(new StringStates(automaton, undefined, budget), lengths);
}

const statesOf = (reader: StringStates, { min, max }: Lengths): Expression => ({
  kind: 'automaton',
  states: min === 0 && max === Infinity ? reader.all() : reader.ofLength(min, max),
});

class StringStates {
  readonly #automaton: Automaton;
  readonly #share: Share | undefined;
  readonly #budget: Budget;

  /** `share`: undefined for texts without escapes. */
  constructor(automaton: Automaton, share: Share | undefined, budget: Budget) {
    this.#automaton = automaton;
    this.#share = share;
    this.#budget = budget;
  }

  all(): AutomatonState[] {
    return Array.from(this.#automaton.accepts, (accepts, state) => ({
      accepts: accepts === 1,
      edges: this.#edges(state, (target) => target),
    }));
  }

  /** A state for each state of the automaton and each count that matters. */
  ofLength(min: number, max: number): AutomatonState[] {
    const { accepts } = this.#automaton;
    const states: AutomatonState[] = [{ accepts: true, edges: [] }];
    const end = 0;
    // The end is not the start, so the states are moved by one below.
    let level = new Map([[0, 1]]);
    let stateCount = 2;
    const add = (state: AutomatonState): void => void states.push(state);
    for (let length = 0; level.size > 0; length++) {
      const isLast = length >= max || (length >= min && stateCount > lengthStatesMax);
      if (stateCount > lengthStatesMax && !isLast) throw new AutomatonTooLarge();
      // Without a maximum, counts from the minimum on are equal.
      const isSame = max === Infinity && length >= min;
      const following = new Map<number, number>(isSame ? level : []);
      const numberOf = (target: number): number => {
        let number = following.get(target);
        if (number === undefined) {
          number = stateCount++;
          following.set(target, number);
        }
        return number;
      };
      const open = [...level.keys()];
      for (let state = open.shift(); state !== undefined; state = open.shift()) {
        const rest = this.#loopOf(state);
        if (rest !== undefined) {
          add({
            accepts: false,
            edges: [{ part: repeat(rest, Math.max(0, min - length), max - length), target: end }],
          });
          continue;
        }
        const before = following.size;
        const edges = isLast && !isSame ? [] : this.#edges(state, numberOf);
        add({ accepts: length >= min && accepts[state] === 1, edges });
        if (isSame) open.push(...[...following.keys()].slice(before));
      }
      if (isSame || isLast) break;
      level = following;
    }
    if (stateCount > states.length) throw new AutomatonTooLarge();
    return startFirst(states);
  }

  /** The characters of a state that accepts and that no character leaves. */
  #loopOf(state: number): Expression | undefined {
    const { alphabet, next, accepts } = this.#automaton;
    const row = next.subarray(state * alphabet.count, (state + 1) * alphabet.count);
    if (accepts[state] === 0 || row.some((target) => target !== state && target !== -1)) return undefined;
    const { direct, others } = this.#charactersOf((symbol) => row[symbol] === state);
    return choiceOf([direct, others].filter((part) => part !== undefined));
  }

  #edges(state: number, numberOf: (target: number) => number): AutomatonState['edges'] {
    const { alphabet, next } = this.#automaton;
    const row = next.subarray(state * alphabet.count, (state + 1) * alphabet.count);
    this.#budget.spendSteps(1 + alphabet.starts.length / 64);
    return [...new Set(row)]
      .filter((target) => target !== -1)
      .flatMap((target) => {
        const { direct, others } = this.#charactersOf((symbol) => row[symbol] === target);
        const number = numberOf(target);
        return [direct, others].filter((part) => part !== undefined).map((part) => ({ part, target: number }));
      });
  }

  /** The other characters take several bytes, so all states share them. */
  #charactersOf(isMember: (symbol: number) => boolean) {
    const ranges = rangesOf(this.#automaton.alphabet, isMember);
    const share = this.#share;
    if (share === undefined) return { direct: isNothing(ranges) ? undefined : classOf(ranges), others: undefined };
    const direct = without(ranges, notDirect);
    const rest = without(ranges, direct);
    const key = rest.map(({ first, last }) => `${first}-${last}`).join();
    return {
      direct: direct.length === 0 ? undefined : classOf(direct),
      others: isNothing(rest) ? undefined : share(key, () => asStringContent(classOf(rest))),
    };
  }
}

/** Plain characters of one byte. */
const notDirect = without(all, without([{ first: 0, last: 0x7f }], special));
const isNothing = (ranges: readonly CodeRange[]): boolean =>
  without(ranges, [{ first: 0xd800, last: 0xdfff }]).length === 0;

/** The start is state 1 of the list. */
function startFirst(states: readonly AutomatonState[]): AutomatonState[] {
  const moved = (state: number): number => (state === 0 ? 1 : state === 1 ? 0 : state);
  const [end, start, ...rest] = states;
  return [start!, end!, ...rest].map(({ accepts, edges }) => ({
    accepts,
    edges: edges.map(({ part, target }) => ({ part, target: moved(target) })),
  }));
}
