import { assert } from '../../base/assert.ts';
import { nullPtr, type RawPtr, type TensorPtr } from '../../ggml/ffi.ts';
import type { GraphBuilder } from '../../ggml/graph.ts';
import { noToken } from './logits-candidates.ts';

/**
 * Finds the best token of each sampled row in the graph, where all of ggml's threads look for it, each in a share of the
 * vocabulary: afterwards one thread would read all logits once more, which is most of what greedy sampling costs.
 */
export class BestTokens {
  readonly #pointer: RawPtr;
  readonly #shares: number;

  /** `pointer`: `NativeLogitsPasses.bestOfShares`. */
  constructor(pointer: RawPtr, threads: number) {
    this.#pointer = pointer;
    this.#shares = threads;
  }

  /** logits F32 `[vocab, rows]` -> what `of` reads. */
  node(graph: GraphBuilder, logits: TensorPtr, rows: number): TensorPtr {
    return graph.custom(logits, this.#shares, rows, this.#pointer, nullPtr(), this);
  }

  /** Of one row, as `LogitsPasses.best` has it. `found`: the node's data; `logits`: of the row. */
  of(found: Int32Array, row: number, logits: Float32Array): number {
    let best = noToken;
    for (let share = 0; share < this.#shares; share++) {
      const token = found[row * this.#shares + share];
      assert(token !== undefined && token < logits.length, 'a best token for every share of a row');
      // The shares ascend: the first that is broken is the row's first, and of equals the first one stays.
      if (token < noToken) return token;
      if (token !== noToken && (best === noToken || logits[token]! > logits[best]!)) best = token;
    }
    return best;
  }
}
