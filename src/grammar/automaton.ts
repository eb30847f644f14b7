import { AutomatonTooLarge, type Budget } from './budget.ts';
import { type CodeRange, codePointMax } from './expression.ts';

/**
 * Characters between which an automaton does not distinguish are one symbol. The characters from `starts[i]` to
 * `starts[i + 1] - 1` are the symbol `symbols[i]`.
 */
export interface Alphabet {
  readonly starts: readonly number[];
  readonly symbols: readonly number[];
  readonly count: number;
}

/** A deterministic automaton over characters. State 0 is the start. */
export interface Automaton {
  readonly alphabet: Alphabet;
  /** `next[state * alphabet.count + symbol]`; -1: no text with this beginning matches. */
  readonly next: Int32Array;
  readonly accepts: Uint8Array;
}

/** The alphabet in which each class is a set of symbols. */
export function alphabetOf(classes: readonly (readonly CodeRange[])[], budget: Budget): Alphabet {
  const bounds = new Set([0]);
  for (const ranges of classes) for (const { first, last } of ranges) bounds.add(first).add(last + 1);
  bounds.delete(codePointMax + 1);
  const starts = [...bounds].sort((a, b) => a - b);
  const keys: string[] = starts.map(() => '');
  for (const [i, ranges] of classes.entries()) {
    for (const { first, last } of ranges) {
      const from = runOf(starts, first);
      const to = runOf(starts, last);
      budget.spendSteps(1 + (to - from) / 8);
      for (let run = from; run <= to; run++) keys[run] += `${i},`;
    }
  }
  return withKeys(starts, keys);
}

function withKeys(starts: readonly number[], keys: readonly string[]): Alphabet {
  const numbers = new Map<string, number>();
  const symbols = keys.map((key) => {
    let symbol = numbers.get(key);
    if (symbol === undefined) {
      symbol = numbers.size;
      numbers.set(key, symbol);
    }
    return symbol;
  });
  return { starts, symbols, count: numbers.size };
}

/** The last index whose start is not above the character. */
function runOf(starts: readonly number[], code: number): number {
  let low = 0;
  let high = starts.length - 1;
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (starts[middle]! <= code) low = middle;
    else high = middle - 1;
  }
  return low;
}

/** Whether each symbol is in the class, which the alphabet distinguishes. */
export function symbolsIn(alphabet: Alphabet, ranges: readonly CodeRange[]): Uint8Array {
  const members = new Uint8Array(alphabet.count);
  for (const { first, last } of ranges) {
    const to = runOf(alphabet.starts, last);
    for (let run = runOf(alphabet.starts, first); run <= to; run++) members[alphabet.symbols[run]!] = 1;
  }
  return members;
}

/** The characters of some symbols, ascending. */
export function rangesOf({ starts, symbols }: Alphabet, isMember: (symbol: number) => boolean): CodeRange[] {
  const ranges: CodeRange[] = [];
  for (let run = 0; run < starts.length; run++) {
    if (!isMember(symbols[run]!)) continue;
    const [first, last] = [starts[run]!, (starts[run + 1] ?? codePointMax + 1) - 1];
    const previous = ranges[ranges.length - 1];
    if (previous?.last === first - 1) ranges[ranges.length - 1] = { first: previous.first, last };
    else ranges.push({ first, last });
  }
  return ranges;
}

export function matches({ alphabet, next, accepts }: Automaton, text: string): boolean {
  let state = 0;
  for (const letter of text) {
    const symbol = alphabet.symbols[runOf(alphabet.starts, letter.codePointAt(0)!)]!;
    state = next[state * alphabet.count + symbol]!;
    if (state === -1) return false;
  }
  return accepts[state] === 1;
}

export interface Factor {
  readonly automaton: Automaton;
  /** The text must not match. */
  readonly isNegated: boolean;
}

/**
 * The texts that match all automata, or do not match those that are negated.
 * @throws AutomatonTooLarge
 */
export function intersection(factors: readonly Factor[], statesMax: number, budget: Budget): Automaton {
  const first = factors[0]!;
  if (factors.length === 1 && !first.isNegated) return first.automaton;
  const { alphabet, symbolsOf } = commonAlphabet(factors, budget);
  const numbers = new Map<string, number>();
  const tuples: number[][] = [];
  const numberOf = (tuple: number[]): number => {
    const key = tuple.join();
    let state = numbers.get(key);
    if (state === undefined) {
      if (tuples.length >= statesMax) throw new AutomatonTooLarge();
      state = tuples.push(tuple) - 1;
      numbers.set(key, state);
    }
    return state;
  };
  numberOf(factors.map(() => 0));
  const next: number[] = [];
  const accepts: number[] = [];
  for (let state = 0; state < tuples.length; state++) {
    const tuple = tuples[state]!;
    budget.spendSteps(1 + (alphabet.count * factors.length) / 4);
    accepts.push(factors.every(({ automaton, isNegated }, i) => accepted(automaton, tuple[i]!) !== isNegated) ? 1 : 0);
    for (let symbol = 0; symbol < alphabet.count; symbol++) {
      const target = tuple.map((from, i) =>
        from === -1
          ? -1
          : factors[i]!.automaton.next[from * factors[i]!.automaton.alphabet.count + symbolsOf[i]![symbol]!]!,
      );
      const isDead = target.some((to, i) => to === -1 && !factors[i]!.isNegated);
      next.push(isDead ? -1 : numberOf(target));
    }
  }
  return { alphabet, next: Int32Array.from(next), accepts: Uint8Array.from(accepts) };
}

const accepted = ({ accepts }: Automaton, state: number): boolean => state !== -1 && accepts[state] === 1;

/** The alphabet that distinguishes what any automaton distinguishes, and the symbol of each automaton for its symbols. */
function commonAlphabet(factors: readonly Factor[], budget: Budget) {
  const alphabets = factors.map(({ automaton }) => automaton.alphabet);
  const starts = [...new Set(alphabets.flatMap((alphabet) => alphabet.starts))].sort((a, b) => a - b);
  budget.spendSteps((starts.length * factors.length) / 8);
  const tuples = starts.map((start) => alphabets.map((alphabet) => alphabet.symbols[runOf(alphabet.starts, start)]!));
  const alphabet = withKeys(
    starts,
    tuples.map((tuple) => tuple.join()),
  );
  const symbolsOf = alphabets.map(() => new Int32Array(alphabet.count));
  for (const [run, tuple] of tuples.entries()) {
    for (const [i, symbol] of tuple.entries()) symbolsOf[i]![alphabet.symbols[run]!] = symbol;
  }
  return { alphabet, symbolsOf };
}

/** Without states from which no text ends. Undefined: nothing matches. */
export function trimmed({ alphabet, next, accepts }: Automaton): Automaton | undefined {
  const { count } = alphabet;
  const users: number[][] = Array.from(accepts, () => []);
  for (let i = 0; i < next.length; i++) if (next[i] !== -1) users[next[i]!]!.push(Math.floor(i / count));
  const isLive = new Uint8Array(accepts.length);
  const open = [...accepts.keys()].filter((state) => accepts[state] === 1);
  for (const state of open) isLive[state] = 1;
  for (let state = open.pop(); state !== undefined; state = open.pop()) {
    for (const user of users[state]!) {
      if (isLive[user] === 1) continue;
      isLive[user] = 1;
      open.push(user);
    }
  }
  if (isLive[0] === 0) return undefined;
  const numbers = new Int32Array(accepts.length).fill(-1);
  const kept = [...accepts.keys()].filter((state) => isLive[state] === 1);
  for (const [i, state] of kept.entries()) numbers[state] = i;
  const table = new Int32Array(kept.length * count);
  for (const [i, state] of kept.entries()) {
    for (let symbol = 0; symbol < count; symbol++) {
      const target = next[state * count + symbol]!;
      table[i * count + symbol] = target === -1 ? -1 : numbers[target]!;
    }
  }
  return { alphabet, next: table, accepts: Uint8Array.from(kept, (state) => accepts[state]!) };
}

/** Joins states that no text distinguishes, if there are few of them: Moore's algorithm, which is quadratic. */
export function minimized(automaton: Automaton): Automaton {
  const { alphabet, next, accepts } = automaton;
  const { count } = alphabet;
  if (accepts.length > 300) return automaton;
  let groups: ArrayLike<number> = accepts;
  for (let groupCount = 0; ; ) {
    const numbers = new Map<string, number>();
    const refined = Int32Array.from(accepts, (_, state) => {
      let key = `${groups[state]}`;
      for (let symbol = 0; symbol < count; symbol++) {
        const target = next[state * count + symbol]!;
        key += `,${target === -1 ? -1 : groups[target]!}`;
      }
      let group = numbers.get(key);
      if (group === undefined) {
        group = numbers.size;
        numbers.set(key, group);
      }
      return group;
    });
    groups = refined;
    if (numbers.size === groupCount) break;
    groupCount = numbers.size;
  }
  // State 0 is the first of group 0.
  const firsts: number[] = [];
  for (let state = 0; state < accepts.length; state++) firsts[groups[state]!] ??= state;
  const table = firsts.flatMap((state) =>
    Array.from(next.subarray(state * count, (state + 1) * count), (target) => (target === -1 ? -1 : groups[target]!)),
  );
  return { alphabet, next: Int32Array.from(table), accepts: Uint8Array.from(firsts, (state) => accepts[state]!) };
}

/** Exactly these texts. */
export function automatonOfTexts(texts: Iterable<string>, budget: Budget): Automaton {
  const children: Map<number, number>[] = [new Map()];
  const ends = new Set<number>();
  const letters = new Set<number>();
  for (const text of texts) {
    let state = 0;
    for (const letter of text) {
      const code = letter.codePointAt(0)!;
      letters.add(code);
      let child = children[state]!.get(code);
      if (child === undefined) {
        child = children.push(new Map()) - 1;
        children[state]!.set(code, child);
      }
      state = child;
    }
    ends.add(state);
  }
  budget.spendSteps((children.length * (letters.size + 1)) / 16);
  const alphabet = alphabetOf(
    [...letters].map((code) => [{ first: code, last: code }]),
    budget,
  );
  const next = new Int32Array(children.length * alphabet.count).fill(-1);
  for (const [state, edges] of children.entries()) {
    for (const [code, child] of edges) {
      next[state * alphabet.count + alphabet.symbols[runOf(alphabet.starts, code)]!] = child;
    }
  }
  return { alphabet, next, accepts: Uint8Array.from(children, (_, state) => (ends.has(state) ? 1 : 0)) };
}
