import { AssertionError, assert } from '../base/assert.ts';
import { type GrammarLimits, grammarLimits } from './budget.ts';
import type { AutomatonState, CodeRange, Expression, Grammar } from './expression.ts';
import { checkNetwork } from './network-check.ts';
import { NetworkError } from './network-error.ts';
import { utf8Of, utf8Sequences } from './utf8.ts';

/**
 * A grammar as a network of states. Edges consume one symbol: a byte, or a control token (`firstTokenSymbol + i`). A call
 * enters a rule and continues at `back` after its end.
 */
export interface Network {
  readonly states: readonly State[];
  readonly start: number;
  readonly counters: readonly Counter[];
  /** Control tokens that the grammar uses; the symbol of the first is `firstTokenSymbol`. */
  readonly tokens: readonly number[];
  /** Of the grammar. */
  readonly notes: readonly string[];
}

export const firstTokenSymbol = 256;

/** Empty lists are the same object, because most lists of most states are empty. */
export interface State {
  edges: readonly Edge[];
  /** States that are reached without a symbol. */
  jumps: readonly number[];
  calls: readonly Call[];
  /** Counters that begin here with count 0. */
  counters: readonly number[];
  /** The rule (or the body of a counter) may end here. */
  isEnd: boolean;
}

export interface Edge {
  readonly first: number;
  readonly last: number;
  readonly target: number;
}

export interface Call {
  readonly start: number;
  readonly back: number;
}

/** Repeats a body that ends at a state with `isEnd`. Large counts cost no states. */
export interface Counter {
  readonly start: number;
  readonly min: number;
  readonly max: number;
  readonly exit: number;
  /** Whether the body matches the empty text. */
  canBeEmpty: boolean;
}

/** Repetitions up to this number of a single character are copied, because counting costs more than a few states. */
const copiesMax = 8;

/** @throws NetworkError */
export function buildNetwork(
  grammar: Grammar,
  controlTokens: ControlTokens,
  { states }: GrammarLimits = grammarLimits,
): Network {
  return new Builder(grammar, controlTokens, states).build();
}

/** The ids of control tokens by their names. */
export type ControlTokens = ReadonlyMap<string, number>;

class Builder {
  readonly #grammar: Grammar;
  readonly #controlTokens: ControlTokens;
  readonly #statesMax: number;
  readonly states: State[] = [];
  readonly #counters: Counter[] = [];
  readonly #tokens: number[] = [];
  readonly #starts = new Map<string, number>();
  readonly #unbuilt: string[] = [];
  /** The first state behind the start of each rule, ascending. */
  readonly #ranges: { readonly rule: string; readonly from: number }[] = [];

  constructor(grammar: Grammar, controlTokens: ControlTokens, statesMax: number) {
    this.#grammar = grammar;
    this.#controlTokens = controlTokens;
    this.#statesMax = statesMax;
  }

  build(): Network {
    const start = this.#state();
    this.states[this.#build(this.#grammar.root, start)]!.isEnd = true;
    for (let name = this.#unbuilt.pop(); name !== undefined; name = this.#unbuilt.pop()) {
      const expression = this.#grammar.rules.get(name);
      if (expression === undefined) throw new NetworkError({ kind: 'unknownRule', rule: name });
      this.#ranges.push({ rule: name, from: this.states.length });
      this.states[this.#build(expression, this.#startOf(name))]!.isEnd = true;
    }
    const { notes = [] } = this.#grammar;
    const network = { states: this.states, start, counters: this.#counters, tokens: this.#tokens, notes };
    checkNetwork(network, (state) => this.#ruleAt(state));
    return network;
  }

  /** The name of the rule that a state belongs to, for error messages: rules are built one after the other. */
  #ruleAt(state: number): string {
    let name = 'root';
    for (const { rule, from } of this.#ranges) if (from <= state) name = rule;
    return name;
  }

  #state(): number {
    const limit = this.#statesMax;
    if (this.states.length >= limit) throw new NetworkError({ kind: 'tooLarge', limit });
    this.states.push({ edges: none, jumps: none, calls: none, counters: none, isEnd: false });
    return this.states.length - 1;
  }

  #startOf(name: string): number {
    let start = this.#starts.get(name);
    if (start === undefined) {
      start = this.#state();
      this.#starts.set(name, start);
      this.#unbuilt.push(name);
    }
    return start;
  }

  /** Adds the expression behind the state `from`. Returns the state after it. */
  #build(expression: Expression, from: number): number {
    switch (expression.kind) {
      case 'text':
        return this.#text(utf8Of(expression.text), from);
      case 'class':
        return this.#class(expression.ranges, from, this.#state());
      case 'sequence':
        return expression.parts.reduce((at, part) => this.#build(part, at), from);
      case 'choice':
        return this.#choice(expression.options, from);
      case 'repeat':
        return this.#repeat(expression, from);
      case 'rule':
        return this.#call(expression.name, from, this.#state());
      case 'automaton':
        return this.#automaton(expression.states, from);
      case 'look':
        throw new AssertionError('assertions are in automata only');
      case 'until':
        return this.#until(expression.end, from);
      case 'token':
        return this.#token(expression.name, from);
    }
  }

  #edge(from: number, first: number, last: number, target: number): void {
    const state = this.states[from]!;
    state.edges = added(state.edges, { first, last, target });
  }

  #jump(from: number, target: number): void {
    const state = this.states[from]!;
    state.jumps = added(state.jumps, target);
  }

  #text(bytes: Uint8Array, from: number): number {
    let at = from;
    for (const byte of bytes) {
      const next = this.#state();
      this.#edge(at, byte, byte, next);
      at = next;
    }
    return at;
  }

  #call(rule: string, from: number, back: number): number {
    const state = this.states[from]!;
    state.calls = added(state.calls, { start: this.#startOf(rule), back });
    return back;
  }

  #automaton(states: readonly AutomatonState[], from: number): number {
    const numbers = states.map(() => this.#state());
    const to = this.#state();
    this.#jump(from, numbers[0]!);
    for (const [i, { accepts, edges }] of states.entries()) {
      const state = numbers[i]!;
      if (accepts) this.#jump(state, to);
      for (const { part, target } of edges) {
        const next = numbers[target]!;
        if (part.kind === 'class') this.#class(part.ranges, state, next);
        else if (part.kind === 'rule') this.#call(part.name, state, next);
        else this.#jump(this.#build(part, state), next);
      }
    }
    return to;
  }

  #class(ranges: readonly CodeRange[], from: number, to: number): number {
    // The encodings of a class have few different endings, which share their states.
    const endings = new Map<string, number>();
    for (const range of ranges) {
      for (const bytes of utf8Sequences(range)) {
        let target = to;
        let key = '';
        for (let i = bytes.length - 1; i > 0; i--) {
          const { first, last } = bytes[i]!;
          key = `${first}-${last} ${key}`;
          let state = endings.get(key);
          if (state === undefined) {
            state = this.#state();
            this.#edge(state, first, last, target);
            endings.set(key, state);
          }
          target = state;
        }
        this.#edge(from, bytes[0]!.first, bytes[0]!.last, target);
      }
    }
    return to;
  }

  /** Texts share the states of their common beginnings, so a choice of many texts has one path for each output. */
  #choice(options: readonly Expression[], from: number): number {
    const to = this.#state();
    const texts = options.filter((option) => option.kind === 'text');
    if (texts.length > 1) this.#texts(texts, from, to);
    for (const option of options) {
      if (texts.length > 1 && option.kind === 'text') continue;
      const start = this.#state();
      this.#jump(from, start);
      this.#jump(this.#build(option, start), to);
    }
    return to;
  }

  #texts(options: readonly { readonly text: string }[], from: number, to: number): void {
    const root = this.#state();
    this.#jump(from, root);
    const children = new Map<number, number>();
    for (const option of options) {
      let at = root;
      for (const byte of utf8Of(option.text)) {
        const key = at * 256 + byte;
        let next = children.get(key);
        if (next === undefined) {
          next = this.#state();
          this.#edge(at, byte, byte, next);
          children.set(key, next);
        }
        at = next;
      }
      if (!this.states[at]!.jumps.includes(to)) this.#jump(at, to);
    }
  }

  #repeat({ part, min, max }: Extract<Expression, { kind: 'repeat' }>, from: number): number {
    assert(min >= 0 && max >= min, `a repetition of ${min} to ${max}`);
    if (max === Infinity) return this.#loop(part, min <= 1 ? from : this.#repeat(repeatOf(part, min - 1), from), min);
    if (max === 0) return from;
    const isSmall = part.kind === 'class' || part.kind === 'text';
    if (max > 1 && !(isSmall && max <= copiesMax)) return this.#count(part, min, max, from);
    const to = this.#state();
    let at = from;
    for (let i = 0; i < max; i++) {
      if (i >= min) this.#jump(at, to);
      at = this.#build(part, at);
    }
    this.#jump(at, to);
    return to;
  }

  #loop(part: Expression, from: number, min: number): number {
    const head = this.#state();
    const to = this.#state();
    this.#jump(from, head);
    if (min === 0) this.#jump(from, to);
    const end = this.#build(part, head);
    this.#jump(end, head);
    this.#jump(end, to);
    return to;
  }

  #count(part: Expression, min: number, max: number, from: number): number {
    const start = this.#state();
    const exit = this.#state();
    const state = this.states[from]!;
    state.counters = added(state.counters, this.#counters.length);
    this.#counters.push({ start, min, max, exit, canBeEmpty: false });
    this.states[this.#build(part, start)]!.isEnd = true;
    return exit;
  }

  /** The automaton of Knuth, Morris and Pratt: state `i` has read the first `i` bytes of `end`. */
  #until(end: string, from: number): number {
    const bytes = utf8Of(end);
    assert(bytes.length > 0, 'a text ends with something');
    const head = this.#state();
    this.#jump(from, head);
    const id = this.#controlTokens.get(end);
    if (id !== undefined) {
      const to = this.#state();
      this.#edge(head, 0, 255, head);
      this.#edge(head, this.#symbolOf(id), this.#symbolOf(id), to);
      return to;
    }
    const states = [head, ...Array.from(bytes, () => this.#state())];
    for (let i = 0; i < bytes.length; i++) {
      const targets = Array.from({ length: 256 }, (_, byte) => states[matched(bytes, i, byte)]!);
      for (let first = 0; first < 256; ) {
        let last = first;
        while (last < 255 && targets[last + 1] === targets[first]) last++;
        this.#edge(states[i]!, first, last, targets[first]!);
        first = last + 1;
      }
    }
    return states[bytes.length]!;
  }

  #token(name: string, from: number): number {
    const id = this.#controlTokens.get(name);
    if (id === undefined) return this.#text(utf8Of(name), from);
    const to = this.#state();
    this.#edge(from, this.#symbolOf(id), this.#symbolOf(id), to);
    return to;
  }

  #symbolOf(id: number): number {
    let index = this.#tokens.indexOf(id);
    if (index === -1) index = this.#tokens.push(id) - 1;
    return firstTokenSymbol + index;
  }
}

const none: readonly never[] = [];

function added<T>(list: readonly T[], item: T): readonly T[] {
  if (list.length === 0) return [item];
  (list as T[]).push(item);
  return list;
}

const repeatOf = (part: Expression, times: number) => ({ kind: 'repeat', part, min: times, max: times }) as const;

/** How many bytes of `tag` are read after `read` bytes of it and `byte`. */
function matched(tag: Uint8Array, read: number, byte: number): number {
  const seen = [...tag.subarray(0, read), byte];
  for (let length = Math.min(read + 1, tag.length); length > 0; length--) {
    const isEnd = tag.subarray(0, length).every((value, i) => value === seen[seen.length - length + i]);
    if (isEnd) return length;
  }
  return 0;
}
