import { allow, type ConstraintState, type OutputConstraint, type TokenMask } from '../core/constraint.ts';
import type { TokenId } from '../core/ids.ts';
import type { MatcherMemory } from './matcher-memory.ts';
import type { Position, Step } from './matcher-sets.ts';
import { MatcherSteps } from './matcher-steps.ts';
import { firstTokenSymbol, type Network } from './network.ts';
import { betweenCharacters, isFirstByte, utf8Next } from './utf8-states.ts';
import {
  byteKinds,
  kindCount,
  plainKinds,
  plainLengthMax,
  type TokenTree,
  type Vocabulary,
  wideKind,
} from './vocabulary.ts';

/**
 * States that one mask may visit. If a mask needs more, it allows no token, and the request ends with an error: only grammars that
 * are ambiguous beyond any use come to this.
 */
const visitsPerMaskMax = 100_000;
/** Subtrees of fewer nodes are not worth the question whether all of it is allowed. */
const subtreeMin = 8;
const allBytes = Array.from({ length: 256 }, (_, byte) => byte);
const wideFirstBytes = allBytes.filter(isFirstByte);

/** Matches outputs with a grammar, byte by byte, and computes the masks of allowed tokens. */
export class Matcher implements OutputConstraint {
  readonly start: ConstraintState;
  readonly #network: Network;
  readonly #vocabulary: Vocabulary;
  readonly #memory: MatcherMemory;
  readonly #steps: MatcherSteps;
  /** One byte of each symbol class that has plain characters of one byte. */
  readonly #plainBytes: readonly number[];
  /** Of the last walk. */
  readonly #allowed: number[] = [];
  #maskSerial = 0;
  /** Of the mask that is computed, as if nothing were cached, so that the result does not depend on earlier requests. */
  #visits = 0;

  constructor(network: Network, vocabulary: Vocabulary, memory: MatcherMemory) {
    this.#network = network;
    this.#vocabulary = vocabulary;
    this.#memory = memory;
    this.#steps = new MatcherSteps(network, memory, vocabulary.source.tokenBytesMax);
    const { classes } = this.#steps;
    const isPlain = (byte: number): boolean => byte < 0x80 && (plainKinds & (1 << byteKinds[byte]!)) !== 0;
    const byClass = new Map(allBytes.filter(isPlain).map((byte) => [classes[byte]!, byte]));
    this.#plainBytes = [...byClass.values()];
    this.start = this.#steps.start;
  }

  advance(state: ConstraintState, token: TokenId): ConstraintState | undefined {
    let position: Position | null = this.#steps.current(state as Position);
    const control = this.#network.tokens.indexOf(token);
    if (control !== -1) return this.#steps.step(position, firstTokenSymbol + control).to ?? undefined;
    const bytes = this.#vocabulary.source.tokenBytes(token);
    if (bytes.length === 0) return undefined;
    for (let i = 0; i < bytes.length && position !== null; i++) position = this.#steps.step(position, bytes[i]!).to;
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
    const position = this.#steps.canonical(this.#steps.current(state as Position));
    if (position.mask === undefined) {
      const inside = this.#computeMask(position);
      const withEnd = position.accepts ? inside.slice() : inside;
      if (position.accepts) for (const id of this.#vocabulary.source.eosTokenIds) allow(withEnd, id);
      position.mask = { inside, withEnd, isEmpty: position.accepts && isEmpty(inside) };
      this.#memory.add(withEnd === inside ? inside.byteLength : 2 * inside.byteLength);
    }
    return { accepts: position.accepts, mask: position.mask };
  }

  #computeMask(position: Position): Uint32Array {
    const { plain, others } = this.#vocabulary;
    this.#maskSerial++;
    this.#visits = 0;
    const length = this.#plainLength(position);
    const mask = length === undefined ? this.#walkedPlain(position) : plain.masks[length]!.slice();
    const allowed = this.#walk(position, others);
    for (let i = 0; i < allowed.length; i += 2) allowRange(mask, others.tokens, allowed[i]!, allowed[i + 1]!);
    if (this.#visits > visitsPerMaskMax) return new Uint32Array(mask.length);
    for (let i = 0; i < this.#network.tokens.length; i++) {
      if (this.#steps.step(position, firstTokenSymbol + i).to !== null) allow(mask, this.#network.tokens[i]!);
    }
    return mask;
  }

  /** The allowed plain tokens, from the mask of none or of all. */
  #walkedPlain(position: Position): Uint32Array {
    const { tree, masks } = this.#vocabulary.plain;
    const allowed = this.#walk(position, tree);
    let count = 0;
    for (let i = 0; i < allowed.length; i += 2) count += allowed[i + 1]! - allowed[i]!;
    const areMost = count > tree.tokens.length / 2;
    const mask = masks[areMost ? plainLengthMax : 0]!.slice();
    if (areMost) {
      for (let i = -1; i < allowed.length; i += 2)
        forbidRange(mask, tree.tokens, allowed[i] ?? 0, allowed[i + 1] ?? tree.tokens.length);
    } else for (let i = 0; i < allowed.length; i += 2) allowRange(mask, tree.tokens, allowed[i]!, allowed[i + 1]!);
    return mask;
  }

  /**
   * How many plain characters of any kind may follow. Then all plain tokens up to this length are allowed, and no others. Undefined:
   * it depends on the characters.
   *
   * The idea of masks that are ready for most tokens inside of a string is that of the slices of llguidance.
   */
  #plainLength(position: Position): number | undefined {
    let at = position;
    for (let length = 0; length < plainLengthMax; length++) {
      at.plain ??= this.#plainStep(at);
      const { to } = at.plain;
      this.#count(at.plain);
      if (to === 'several') return undefined;
      if (to === null) return length;
      if (to === at) break;
      at = to;
    }
    return plainLengthMax;
  }

  #plainStep(position: Position): NonNullable<Position['plain']> {
    const steps = this.#plainBytes.map((byte) => this.#steps.step(position, byte));
    const { to } = steps[0]!;
    let cost = steps.reduce((sum, step) => sum + step.cost, 0);
    let isOne = steps.every((step) => step.to === to);
    if (isOne && to === null) isOne = wideFirstBytes.every((byte) => this.#steps.step(position, byte).to === null);
    else if (isOne) {
      const wide = this.#readWide(position, to!);
      isOne = wide.isSo;
      cost += wide.cost;
    }
    return { to: isOne ? to : 'several', cost, counted: 0 };
  }

  #count(step: Omit<Step, 'to'>): void {
    if (step.counted === this.#maskSerial) return;
    step.counted = this.#maskSerial;
    this.#visits += step.cost;
  }

  /** The allowed tokens of a tree, as pairs of the first and the end of a range of `tokens`. Ascending. */
  #walk(position: Position, tree: TokenTree): readonly number[] {
    const { bytes, depths, ends, tokenStarts } = tree;
    const allowed = this.#allowed;
    allowed.length = 0;
    const path: Position[] = [position];
    for (let node = 1; node < bytes.length && this.#visits <= visitsPerMaskMax; ) {
      const depth = depths[node]!;
      const from = path[depth - 1]!;
      const step = this.#steps.step(from, bytes[node]!);
      this.#count(step);
      const end = ends[node]!;
      if (step.to === null) {
        node = end;
        continue;
      }
      path[depth] = step.to;
      const following = end - node > subtreeMin && this.#readsSubtree(from, step.to, tree, node) ? end : node + 1;
      const first = tokenStarts[node]!;
      const last = tokenStarts[following]!;
      if (allowed[allowed.length - 1] === first) allowed[allowed.length - 1] = last;
      else if (first < last) allowed.push(first, last);
      node = following;
    }
    return allowed;
  }

  /** Whether all tokens of a subtree are allowed, as far as it is known without reading them. */
  #readsSubtree(from: Position, to: Position, tree: TokenTree, node: number): boolean {
    const byte = tree.bytes[node]!;
    if (byte < 0x80 && to !== from) {
      return tree === this.#vocabulary.plain.tree && this.#plainLength(to) === plainLengthMax;
    }
    // If all characters of several bytes lead back to a position, so do those that begin with this byte.
    return (tree.kinds[node]! & ~this.#loopsOf(isFirstByte(byte) ? from : to)) === 0;
  }

  /** The kinds of bytes that the position reads without a change: a subtree that has no others is allowed as a whole. */
  #loopsOf(position: Position): number {
    position.loops ??= this.#findLoops(position);
    this.#count(position.loops);
    return position.loops.kinds;
  }

  #findLoops(position: Position): NonNullable<Position['loops']> {
    let kinds = ((1 << kindCount) - 1) & ~wideKind;
    let cost = 0;
    let last: Step | undefined;
    for (const byte of allBytes) {
      const step = this.#steps.step(position, byte);
      if (step !== last) cost += step.cost;
      last = step;
      if (step.to !== position) kinds &= ~(1 << byteKinds[byte]!);
    }
    const wide = this.#readWide(position, position);
    return { kinds: wide.isSo ? kinds | wideKind : kinds, cost: cost + wide.cost, counted: 0 };
  }

  /** Whether each character of several bytes leads to `end`, and what it costs to find that. */
  #readWide(position: Position, end: Position): { readonly isSo: boolean; readonly cost: number } {
    const open: [Position, number][] = [[position, betweenCharacters]];
    const seen = new Set<string>();
    let cost = 0;
    for (let item = open.pop(); item !== undefined; item = open.pop()) {
      const [from, state] = item;
      let last: Step | undefined;
      for (let byte = 0x80; byte < 256; byte++) {
        const after = utf8Next[state * 256 + byte]!;
        if (after === -1) continue;
        const step = this.#steps.step(from, byte);
        if (step !== last) cost += step.cost;
        last = step;
        const isEnd = after === betweenCharacters;
        if (step.to === null || (isEnd && step.to !== end)) return { isSo: false, cost };
        const key = `${step.to.id},${after}`;
        if (isEnd || seen.has(key)) continue;
        seen.add(key);
        open.push([step.to, after]);
      }
    }
    return { isSo: true, cost };
  }
}

function isEmpty(mask: Uint32Array): boolean {
  for (let i = 0; i < mask.length; i++) if (mask[i] !== 0) return false;
  return true;
}

function allowRange(mask: Uint32Array, tokens: Int32Array, first: number, end: number): void {
  for (let i = first; i < end; i++) allow(mask, tokens[i]!);
}

function forbidRange(mask: Uint32Array, tokens: Int32Array, first: number, end: number): void {
  for (let i = first; i < end; i++) mask[tokens[i]! >> 5] = mask[tokens[i]! >> 5]! & ~(1 << (tokens[i]! & 31));
}
