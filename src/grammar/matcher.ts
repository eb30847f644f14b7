import type { ConstraintState, OutputConstraint, TokenMask } from '../core/constraint.ts';
import type { TokenId } from '../core/ids.ts';
import { MatcherSets, type Position, type Stack } from './matcher-sets.ts';
import { type Counter, firstTokenSymbol, type Network, type State } from './network.ts';
import { betweenCharacters, isFirstByte, utf8Next } from './utf8-states.ts';
import { byteKinds, kindCount, type Vocabulary, wideKind } from './vocabulary.ts';

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

/**
 * States that one symbol may visit, and that one mask may visit. If a mask needs more, it allows no token, and the request
 * ends with an error: only grammars that are ambiguous beyond any use come to this.
 */
const visitsPerSymbolMax = 10_000;
const visitsPerMaskMax = 100_000;
/** Subtrees of fewer nodes are not worth the question whether all of it is allowed. */
const subtreeMin = 8;

/** Shared by the grammars of an engine: when they hold too much together, each starts with empty caches. */
export class MatcherMemory {
  readonly #bytesMax: number;
  #bytes = 0;
  generation = 0;

  constructor(bytesMax: number) {
    this.#bytesMax = bytesMax;
  }

  add(bytes: number): void {
    this.#bytes += bytes;
    if (this.#bytes <= this.#bytesMax) return;
    this.#bytes = 0;
    this.generation++;
  }
}

/** Of a frame of a stack, or of a state of a position. */
const bytesPerEntry = 200;
const bytesPerResult = 24;

/**
 * Matches outputs with a grammar, byte by byte, on all paths at once: a pushdown automaton whose stacks are merged. The
 * results of each symbol are kept, so parts of a grammar that are regular, such as strings, become a finite automaton.
 */
export class Matcher implements OutputConstraint {
  readonly start: ConstraintState;
  readonly #network: Network;
  readonly #vocabulary: Vocabulary;
  readonly #memory: MatcherMemory;
  /** Symbols between which the grammar does not distinguish have the same class. */
  readonly #classes: Uint16Array;
  readonly #classSymbols: readonly number[];
  readonly #isPureEnd: Uint8Array;
  #sets: MatcherSets;
  #canonicalStacks = new Map<Stack, Stack>();
  #maskSerial = 0;
  #visits = 0;

  constructor(network: Network, vocabulary: Vocabulary, memory: MatcherMemory) {
    this.#network = network;
    this.#vocabulary = vocabulary;
    this.#memory = memory;
    this.#sets = new MatcherSets(memory.generation);
    ({ classes: this.#classes, symbols: this.#classSymbols } = symbolClasses(network));
    this.#isPureEnd = Uint8Array.from(network.states, (state) => (isPureEnd(state) ? 1 : 0));
    const bottom = this.#sets.stack([bottomFrame], [undefined]);
    this.start = this.#closure([[network.start, bottom]]) ?? this.#sets.position([], [], false);
  }

  advance(state: ConstraintState, token: TokenId): ConstraintState | undefined {
    let position: Position | null = this.#current(state);
    const control = this.#network.tokens.indexOf(token);
    if (control !== -1) return this.#next(position, firstTokenSymbol + control) ?? undefined;
    const bytes = this.#vocabulary.source.tokenBytes(token);
    if (bytes.length === 0) return undefined;
    for (let i = 0; i < bytes.length && position !== null; i++) position = this.#next(position, bytes[i]!);
    return position ?? undefined;
  }

  allowedTokens(state: ConstraintState, avoidEnd: boolean): TokenMask {
    const { accepts, mask } = this.#masked(state);
    return accepts && !(avoidEnd && !mask.isEmpty) ? mask.withEnd : mask.inside;
  }

  isComplete(state: ConstraintState): boolean {
    const { accepts, mask } = this.#masked(state);
    return accepts && mask.isEmpty;
  }

  #masked(state: ConstraintState) {
    const position = this.#canonical(this.#current(state));
    if (position.mask === undefined) {
      const inside = this.#computeMask(position);
      const withEnd = inside.slice();
      for (const id of this.#vocabulary.source.eosTokenIds) allow(withEnd, id);
      position.mask = { inside, withEnd, isEmpty: inside.every((word) => word === 0) };
      this.#memory.add(2 * inside.byteLength);
    }
    return { accepts: position.accepts, mask: position.mask };
  }

  /** After the caches were emptied, a position continues without its cached results. */
  #current(state: ConstraintState): Position {
    const position = state as Position;
    const { generation } = this.#memory;
    if (this.#sets.generation !== generation) {
      this.#sets = new MatcherSets(generation);
      this.#canonicalStacks = new Map();
    }
    if (position.generation === generation) return position;
    return this.#sets.position(position.states, position.stacks, position.accepts);
  }

  /** Null if the grammar does not allow the symbol. */
  #next(position: Position, symbol: number): Position | null {
    const symbolClass = this.#classes[symbol]!;
    const known = position.next[symbolClass];
    if (known !== undefined) return known;
    const representative = this.#classSymbols[symbolClass]!;
    const reached: [number, Stack][] = [];
    for (let i = 0; i < position.states.length; i++) {
      for (const { first, last, target } of this.#network.states[position.states[i]!]!.edges) {
        if (first <= representative && representative <= last) reached.push([target, position.stacks[i]!]);
      }
    }
    const closed = reached.length === 0 ? null : this.#closure(reached);
    const next = closed ?? null;
    this.#memory.add(bytesPerResult);
    position.next[symbolClass] = next;
    position.costs[symbolClass] = closed === null ? 1 : closed === undefined ? Infinity : this.#visits;
    return next;
  }

  /** Everything that is reached without reading a symbol. Undefined if it is too much. */
  #closure(open: [number, Stack][]): Position | undefined {
    const { states, counters } = this.#network;
    const sets = this.#sets;
    const sizeBefore = sets.size;
    const visited = new Set<number>();
    const readers = new Map<number, Stack[]>();
    /** Frames of counters whose body has read nothing yet. */
    const fresh = new Set<Stack>();
    let accepts = false;
    this.#visits = 0;
    const enter = (index: number, count: number, stack: Stack): void => {
      const { start, exit, min, max, canBeEmpty } = counters[index]!;
      if (canBeEmpty || count === countBetween || (count !== countBelowMin && count >= min)) open.push([exit, stack]);
      if (count < countBelowMin && count >= max) return;
      const inside = sets.stack([frameOfCount(index, count)], [stack]);
      if (canBeEmpty) fresh.add(inside);
      open.push([start, inside]);
    };
    for (let item = open.pop(); item !== undefined; item = open.pop()) {
      const [index, stack] = item;
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
      for (const target of state.jumps) open.push([target, stack]);
      for (const { start, back } of state.calls)
        open.push([start, this.#isPureEnd[back] === 1 ? stack : sets.stack([back], [stack])]);
      for (const counter of state.counters) enter(counter, 0, stack);
      // A round of a counter that reads nothing only uses up a count.
      if (!state.isEnd || fresh.has(stack)) continue;
      for (let i = 0; i < stack.frames.length; i++) {
        const frame = stack.frames[i]!;
        if (frame === bottomFrame) accepts = true;
        else if (frame >= 0) open.push([frame, stack.parents[i]!]);
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

  #computeMask(position: Position): Uint32Array {
    const { tree, source } = this.#vocabulary;
    const { bytes, depths, ends, kinds, tokens, tokenStarts } = tree;
    const mask = new Uint32Array((source.vocabSize + 31) >>> 5);
    const serial = ++this.#maskSerial;
    const path: Position[] = [position];
    let visits = 0;
    for (let node = 1; node < bytes.length; ) {
      const depth = depths[node]!;
      const from = path[depth - 1]!;
      const symbolClass = this.#classes[bytes[node]!]!;
      const next = this.#next(from, bytes[node]!);
      visits += costOnce(from, symbolClass, serial);
      const end = ends[node]!;
      let tokensEnd = tokenStarts[node + 1]!;
      let following = node + 1;
      if (next === null) {
        tokensEnd = tokenStarts[node]!;
        following = end;
      } else if (end - node > subtreeMin) {
        // If all characters of several bytes lead back to a position, so do those that begin with this byte.
        const isWide = isFirstByte(bytes[node]!);
        const looping = isWide ? from : next;
        const read = isWide ? kinds[node]! | wideKind : kinds[node]!;
        const isLoop = (read & ~this.#loopsOf(looping)) === 0;
        visits += costOnce(looping, this.#classSymbols.length, serial);
        if (isLoop) {
          tokensEnd = tokenStarts[end]!;
          following = end;
        }
      }
      // Counted as if nothing were cached, so that the result does not depend on earlier requests.
      if (visits > visitsPerMaskMax) return new Uint32Array(mask.length);
      for (let i = tokenStarts[node]!; i < tokensEnd; i++) allow(mask, tokens[i]!);
      if (next !== null) path[depth] = next;
      node = following;
    }
    for (let i = 0; i < this.#network.tokens.length; i++) {
      if (this.#next(position, firstTokenSymbol + i) !== null) allow(mask, this.#network.tokens[i]!);
    }
    return mask;
  }

  /** The kinds of bytes that the position reads without a change: a subtree that has no others is allowed as a whole. */
  #loopsOf(position: Position): number {
    if (position.loops !== undefined) return position.loops;
    let loops = ((1 << kindCount) - 1) & ~wideKind;
    for (let byte = 0; byte < 256; byte++) {
      const kind = 1 << byteKinds[byte]!;
      if (this.#next(position, byte) !== position) loops &= ~kind;
    }
    const cost = position.costs.reduce((sum, one) => sum + one, 0);
    const wide = this.#readWide(position);
    position.loops = wide.isLoop ? loops | wideKind : loops;
    position.costs[this.#classSymbols.length] = cost + wide.cost;
    return position.loops;
  }

  /** Whether each character of several bytes leads back to the position, and what it costs to find that. */
  #readWide(position: Position): { readonly isLoop: boolean; readonly cost: number } {
    const open: [Position, number][] = [[position, betweenCharacters]];
    const seen = new Set<string>();
    let cost = 0;
    for (let item = open.pop(); item !== undefined; item = open.pop()) {
      const [from, state] = item;
      let symbolClass = -1;
      for (let byte = 0x80; byte < 256; byte++) {
        const after = utf8Next[state * 256 + byte]!;
        if (after === -1) continue;
        const next = this.#next(from, byte);
        // Bytes of one class have one result.
        if (this.#classes[byte]! !== symbolClass) {
          symbolClass = this.#classes[byte]!;
          cost += from.costs[symbolClass]!;
        }
        const isEnd = after === betweenCharacters;
        if (next === null || (isEnd && next !== position)) return { isLoop: false, cost };
        const key = `${next.id},${after}`;
        if (isEnd || seen.has(key)) continue;
        seen.add(key);
        open.push([next, after]);
      }
    }
    return { isLoop: true, cost };
  }

  /** A position that allows the same tokens, and that many positions share: counts do not matter far from their limits. */
  #canonical(position: Position): Position {
    position.canonical ??= this.#sets.position(
      position.states,
      position.stacks.map((stack) => this.#canonicalStack(stack)),
      position.accepts,
    );
    return position.canonical;
  }

  /** Without recursion, because an output can open any number of brackets. */
  #canonicalStack(top: Stack): Stack {
    const known = this.#canonicalStacks;
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
    const reach = this.#vocabulary.source.tokenBytesMax + 1;
    if (count + reach < counter.min) return frameOfCount(index, countBelowMin);
    if (count >= counter.min && count + reach < counter.max) return frameOfCount(index, countBetween);
    return frame;
  }
}

/** The cost of a result, once for each mask. */
function costOnce(position: Position, symbolClass: number, serial: number): number {
  if (position.counted[symbolClass] === serial) return 0;
  position.counted[symbolClass] = serial;
  return position.costs[symbolClass]!;
}

function allow(mask: Uint32Array, token: number): void {
  mask[token >> 5] = mask[token >> 5]! | (1 << (token & 31));
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
