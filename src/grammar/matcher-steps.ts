import type { MatcherMemory } from './matcher-memory.ts';
import { MatcherSets, type Position, type Stack, type Step } from './matcher-sets.ts';
import { type Counter, firstTokenSymbol, type Network, type State } from './network.ts';

/**
 * Frames of a stack. At least 0: the state at which the caller of a rule continues. `bottomFrame`: the end of the output.
 * Below: a counter and how often its body was read.
 */
const bottomFrame = -1;
const countEnd = 2 ** 24;
/** Counts that are so far from the minimum or the maximum that no token can reach it. Only in canonical positions. */
const countBelowMin = countEnd - 2;
const countBetween = countEnd - 1;
const frameOfCount = (counter: number, count: number): number => -2 - (counter * countEnd + count);

/** States that one symbol may visit. Only grammars that are ambiguous beyond any use need more, and then the symbol is not allowed. */
const visitsPerSymbolMax = 10_000;

/** Of a frame of a stack, or of a state of a position. */
const bytesPerEntry = 200;
const bytesPerStep = 64;

const rejected: Step = { to: null, cost: 0, counted: 0 };

/**
 * Reads symbols with a network, on all paths at once: a pushdown automaton whose stacks are merged. The results of each symbol
 * are kept, so parts of a grammar that are regular, such as strings, become a finite automaton.
 */
export class MatcherSteps {
  readonly start: Position;
  /** Symbols between which the grammar does not distinguish have the same class. */
  readonly classes: Uint16Array;
  readonly #classSymbols: readonly number[];
  readonly #network: Network;
  readonly #memory: MatcherMemory;
  /** Of the longest token, and one more. */
  readonly #reach: number;
  readonly #isPureEnd: Uint8Array;
  #sets: MatcherSets;
  #visits = 0;

  constructor(network: Network, memory: MatcherMemory, tokenBytesMax: number) {
    this.#network = network;
    this.#memory = memory;
    this.#reach = tokenBytesMax + 1;
    this.#sets = new MatcherSets(memory.generation);
    ({ classes: this.classes, symbols: this.#classSymbols } = symbolClasses(network));
    this.#isPureEnd = Uint8Array.from(network.states, (state) => (isPureEnd(state) ? 1 : 0));
    const bottom = this.#sets.stack([bottomFrame], [undefined]);
    this.start = this.#closure([network.start], [bottom]) ?? this.#sets.position([], [], false);
  }

  /** After the caches were emptied, a position continues without its cached results. */
  current(position: Position): Position {
    const { generation } = this.#memory;
    if (this.#sets.generation !== generation) this.#sets = new MatcherSets(generation);
    if (position.generation === generation) return position;
    return this.#sets.position(position.states, position.stacks, position.accepts);
  }

  step(position: Position, symbol: number): Step {
    return position.steps[this.classes[symbol]!] ?? this.#findStep(position, this.classes[symbol]!);
  }

  #findStep(position: Position, symbolClass: number): Step {
    const representative = this.#classSymbols[symbolClass]!;
    const targets: number[] = [];
    const stacks: Stack[] = [];
    for (let i = 0; i < position.states.length; i++) {
      for (const { first, last, target } of this.#network.states[position.states[i]!]!.edges) {
        if (representative < first || last < representative) continue;
        targets.push(target);
        stacks.push(position.stacks[i]!);
      }
    }
    const step = targets.length === 0 ? rejected : this.#entered(targets, stacks);
    position.steps[symbolClass] = step;
    return step;
  }

  /** The step into states. */
  #entered(targets: number[], stacks: Stack[]): Step {
    const { steps } = this.#sets;
    const key =
      targets.length === 1
        ? stacks[0]!.id * this.#network.states.length + targets[0]!
        : targets.map((target, i) => `${target}:${stacks[i]!.id}`).join();
    let step = steps.get(key);
    if (step === undefined) {
      const to = this.#closure(targets, stacks);
      step = { to: to ?? null, cost: to === undefined ? Infinity : this.#visits, counted: 0 };
      steps.set(key, step);
      this.#memory.add(bytesPerStep);
    }
    return step;
  }

  /** Everything that is reached without reading a symbol, from states that each have a stack. Undefined if it is too much. */
  #closure(openStates: number[], openStacks: Stack[]): Position | undefined {
    const { states, counters } = this.#network;
    const sets = this.#sets;
    const sizeBefore = sets.size;
    const visited = new Set<number>();
    const readers = new Map<number, Stack[]>();
    /** Frames of counters whose body has read nothing yet. */
    const fresh = new Set<Stack>();
    let accepts = false;
    this.#visits = 0;
    const open = (index: number, stack: Stack): void => {
      openStates.push(index);
      openStacks.push(stack);
    };
    const enter = (index: number, count: number, stack: Stack): void => {
      const { start, exit, min, max, canBeEmpty } = counters[index]!;
      if (canBeEmpty || count === countBetween || (count !== countBelowMin && count >= min)) open(exit, stack);
      if (count < countBelowMin && count >= max) return;
      const inside = sets.stack([frameOfCount(index, count)], [stack]);
      if (canBeEmpty) fresh.add(inside);
      open(start, inside);
    };
    for (let index = openStates.pop(); index !== undefined; index = openStates.pop()) {
      const stack = openStacks.pop()!;
      const key = stack.id * states.length + index;
      if (visited.has(key)) continue;
      visited.add(key);
      this.#visits += 1 + stack.frames.length;
      if (this.#visits > visitsPerSymbolMax) return undefined;
      const state = states[index]!;
      if (state.edges.length > 0) {
        const others = readers.get(index);
        if (others === undefined) readers.set(index, [stack]);
        else others.push(stack);
      }
      for (const target of state.jumps) open(target, stack);
      for (const { start, back } of state.calls)
        open(start, this.#isPureEnd[back] === 1 ? stack : sets.stack([back], [stack]));
      for (const counter of state.counters) enter(counter, 0, stack);
      // A round of a counter that reads nothing only uses up a count.
      if (!state.isEnd || fresh.has(stack)) continue;
      for (let i = 0; i < stack.frames.length; i++) {
        const frame = stack.frames[i]!;
        if (frame === bottomFrame) accepts = true;
        else if (frame >= 0) open(frame, stack.parents[i]!);
        else {
          const count = (-2 - frame) % countEnd;
          const counter = (-2 - frame - count) / countEnd;
          enter(counter, count >= countBelowMin ? count : count + 1, stack.parents[i]!);
        }
      }
    }
    const found = [...readers.keys()].sort((a, b) => a - b);
    const position = sets.position(
      found,
      found.map((index) => sets.unionOf(readers.get(index)!)),
      accepts,
    );
    this.#memory.add((sets.size - sizeBefore) * bytesPerEntry);
    return position;
  }

  /** A position that allows the same tokens, and that many positions share: counts do not matter far from their limits. */
  canonical(position: Position): Position {
    if (this.#network.counters.length === 0) return position;
    position.canonical ??= this.#sets.position(
      position.states,
      position.stacks.map((stack) => this.#canonicalStack(stack)),
      position.accepts,
    );
    return position.canonical;
  }

  /** Without recursion, because an output can open any number of brackets. */
  #canonicalStack(top: Stack): Stack {
    const known = this.#sets.canonicalStacks;
    const open = [top];
    for (let stack = open[open.length - 1]; stack !== undefined; stack = open[open.length - 1]) {
      const missing = stack.parents.filter((parent) => parent !== undefined && !known.has(parent)) as Stack[];
      open.push(...missing);
      if (missing.length > 0) continue;
      open.pop();
      const frames = stack.frames.map((frame) => this.#canonicalFrame(frame));
      const parents = stack.parents.map((parent) => (parent === undefined ? undefined : known.get(parent)!));
      known.set(stack, this.#joinedFrames(frames, parents));
    }
    return known.get(top)!;
  }

  /** Frames that were different can be equal now. */
  #joinedFrames(frames: readonly number[], parents: readonly (Stack | undefined)[]): Stack {
    return this.#sets.unionOf(frames.map((frame, i) => this.#sets.stack([frame], [parents[i]])));
  }

  #canonicalFrame(frame: number): number {
    if (frame >= bottomFrame) return frame;
    const count = (-2 - frame) % countEnd;
    const index = (-2 - frame - count) / countEnd;
    const counter: Counter = this.#network.counters[index]!;
    if (counter.canBeEmpty || count >= countBelowMin) return frame;
    if (count + this.#reach < counter.min) return frameOfCount(index, countBelowMin);
    if (count >= counter.min && count + this.#reach < counter.max) return frameOfCount(index, countBetween);
    return frame;
  }
}

const isPureEnd = ({ isEnd, edges, jumps, calls, counters }: State): boolean =>
  isEnd && edges.length + jumps.length + calls.length + counters.length === 0;

function symbolClasses({ states, tokens }: Network): { classes: Uint16Array; symbols: number[] } {
  const symbolCount = firstTokenSymbol + tokens.length;
  const begins = new Uint8Array(symbolCount + 1);
  begins[0] = 1;
  for (let symbol = firstTokenSymbol; symbol < symbolCount; symbol++) begins[symbol] = 1;
  for (const { edges } of states) {
    for (const { first, last } of edges) {
      begins[first] = 1;
      begins[last + 1] = 1;
    }
  }
  const classes = new Uint16Array(symbolCount);
  const symbols: number[] = [];
  for (let symbol = 0; symbol < symbolCount; symbol++) {
    if (begins[symbol] === 1) symbols.push(symbol);
    classes[symbol] = symbols.length - 1;
  }
  return { classes, symbols };
}
