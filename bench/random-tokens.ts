import { Prng } from '../src/base/prng.ts';

/** Random tokens, so that no prefix cache has them. The work does not depend on the tokens. */
export class RandomTokens {
  readonly #prng: Prng;
  readonly #vocabSize: number;

  constructor(seed: number, vocabSize: number) {
    this.#prng = new Prng(seed);
    this.#vocabSize = vocabSize;
  }

  take(length: number): Int32Array {
    return Int32Array.from({ length }, () => this.#prng.between(0, this.#vocabSize - 1));
  }
}

/** The context of a sequence: the same tokens for every subject and every repetition. */
export const contextTokens = (depth: number, vocabSize: number, sequence: number): Int32Array =>
  new RandomTokens(1 + sequence, vocabSize).take(depth);
