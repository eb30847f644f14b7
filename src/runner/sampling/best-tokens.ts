import { assert } from '../../base/assert.ts';
import { nullPtr, type RawPtr, type TensorPtr } from '../../ggml/ffi.ts';
import type { GraphBuilder } from '../../ggml/graph.ts';
import { noToken } from './logits-candidates.ts';

/**
 * Finds the best token of each sampled row in the graph: each of ggml's threads searches a share of the vocabulary.
 * After the graph, a single thread would read all logits again, which takes most of the time of greedy sampling.
 */
export class BestTokens {
  readonly #pointer: RawPtr;
  readonly #shares: number;

  /** `pointer`: `NativeLogitsPasses.bestOfShares`. */
  constructor(pointer: RawPtr, threads: number) {
    this.#pointer = pointer;
    this.#shares = threads;
  }

  /** logits F32 `[vocab, rows]` -> I32 `[shares, rows]`, which `of` reads. */
  node(graph: GraphBuilder, logits: TensorPtr, rows: number): TensorPtr {
    return graph.custom(logits, this.#shares, rows, this.#pointer, nullPtr(), this);
  }

  /** The result of `LogitsPasses.best` for one row. `found`: the node's data; `logits`: of the row. */
  of(found: Int32Array, row: number, logits: Float32Array): number {
    let best = noToken;
    for (let share = 0; share < this.#shares; share++) {
      const token = found[row * this.#shares + share];
      assert(token !== undefined && token < logits.length, 'a best token for every share of a row');
      // Shares are in ascending order, so the first non-finite logit is the row's first, and of equal logits the first
      // wins.
      if (token < noToken) return token;
      if (token !== noToken && (best === noToken || logits[token]! > logits[best]!)) best = token;
    }
    return best;
  }
}
