/** Rules that are entered and not finished: the places where the grammar continues, as a set of stacks. */
export interface Stack {
  readonly id: number;
  /** Ascending. See `frameOf...` in `matcher-steps.ts`. */
  readonly frames: readonly number[];
  /** Parallel to `frames`: the stacks below. Undefined below the last frame. */
  readonly parents: readonly (Stack | undefined)[];
}

/** The states that may read the next symbol, each with its stacks. */
export interface Position {
  readonly id: number;
  readonly generation: number;
  /** Ascending. */
  readonly states: readonly number[];
  readonly stacks: readonly Stack[];
  /** Whether the output may end here. */
  readonly accepts: boolean;
  /** By symbol class. */
  readonly steps: (Step | undefined)[];
  /** `withEnd` and `isEmpty`: only if the output may end here. */
  mask: { readonly inside: Uint32Array; readonly withEnd: Uint32Array; readonly isEmpty: boolean } | undefined;
  canonical: Position | undefined;
  /** The kinds of bytes that lead back here, one bit each. */
  loops: Counted<{ readonly kinds: number }> | undefined;
  /** Where every plain character leads. */
  plain: Counted<{ readonly to: Position | 'several' | null }> | undefined;
}

/** What a symbol leads to. Symbols that lead to the same states share it, also those of different positions. */
export type Step = Counted<{
  /** Null: the grammar does not allow the symbol. */
  readonly to: Position | null;
}>;

type Counted<Result> = Result & {
  /** States that were visited to find the result. Infinity: too many. */
  readonly cost: number;
  /** The last mask for which the cost was counted. */
  counted: number;
};

let ids = 0;

/**
 * Gives equal sets the same object. So a state of the matcher that comes again, such as the inside of a string, has its
 * results and its mask already.
 */
export class MatcherSets {
  readonly generation: number;
  /** By the states that a symbol leads to, each with its stack. */
  readonly steps = new Map<number | string, Step>();
  readonly canonicalStacks = new Map<Stack, Stack>();
  readonly #stacks = new Map<string, Stack>();
  readonly #positions = new Map<string, Position>();
  readonly #unions = new Map<string, Stack>();
  #size = 0;

  constructor(generation: number) {
    this.generation = generation;
  }

  stack(frames: readonly number[], parents: readonly (Stack | undefined)[]): Stack {
    let key = '';
    for (let i = 0; i < frames.length; i++) key += `${frames[i]}:${parents[i]?.id ?? ''},`;
    let stack = this.#stacks.get(key);
    if (stack === undefined) {
      stack = { id: ++ids, frames, parents };
      this.#size += frames.length;
      this.#stacks.set(key, stack);
    }
    return stack;
  }

  position(states: readonly number[], stacks: readonly Stack[], accepts: boolean): Position {
    let key = accepts ? '!' : '';
    for (let i = 0; i < states.length; i++) key += `${states[i]}:${stacks[i]!.id},`;
    let position = this.#positions.get(key);
    if (position === undefined) {
      position = {
        id: ++ids,
        generation: this.generation,
        states,
        stacks,
        accepts,
        steps: [],
        mask: undefined,
        canonical: undefined,
        loops: undefined,
        plain: undefined,
      };
      this.#positions.set(key, position);
      this.#size += 1 + states.length;
    }
    return position;
  }

  /** The stacks of both sets. Stacks share what is equal, so an ambiguous grammar needs few of them. */
  union(a: Stack, b: Stack): Stack {
    if (a === b) return a;
    const key = a.id < b.id ? `${a.id},${b.id}` : `${b.id},${a.id}`;
    const known = this.#unions.get(key);
    if (known !== undefined) return known;
    const frames: number[] = [];
    const parents: (Stack | undefined)[] = [];
    let i = 0;
    let j = 0;
    while (i < a.frames.length || j < b.frames.length) {
      const left = a.frames[i] ?? Infinity;
      const right = b.frames[j] ?? Infinity;
      frames.push(Math.min(left, right));
      const lower = left <= right ? a.parents[i] : undefined;
      const upper = right <= left ? b.parents[j] : undefined;
      parents.push(lower !== undefined && upper !== undefined ? this.union(lower, upper) : (lower ?? upper));
      if (left <= right) i++;
      if (right <= left) j++;
    }
    const result = this.stack(frames, parents);
    this.#unions.set(key, result);
    return result;
  }

  /** In pairs, so that many stacks cost n log n. */
  unionOf(stacks: readonly Stack[]): Stack {
    let rest = stacks;
    while (rest.length > 1) {
      const joined: Stack[] = [];
      for (let i = 0; i < rest.length; i += 2) {
        const second = rest[i + 1];
        joined.push(second === undefined ? rest[i]! : this.union(rest[i]!, second));
      }
      rest = joined;
    }
    return rest[0]!;
  }

  /** Frames and states in memory. */
  get size(): number {
    return this.#size;
  }
}
