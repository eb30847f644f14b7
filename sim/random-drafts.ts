import type { Prng } from '../src/base/prng.ts';
import type { RequestId } from '../src/core/ids.ts';
import type { RequestState } from '../src/scheduler/request-state.ts';
import type { Speculator } from '../src/scheduler/speculation/speculator.ts';

/** Drafts that are partly right: tokens of the reference, some of which are replaced at random. */
export class RandomDrafts implements Speculator {
  readonly #prng: Prng;
  readonly #vocabSize: number;
  readonly #nextTokens: (id: RequestId) => readonly number[];
  readonly #lengthMax: number;

  /** `nextTokens`: the right tokens. */
  constructor(prng: Prng, vocabSize: number, nextTokens: (id: RequestId) => readonly number[]) {
    this.#prng = prng;
    this.#vocabSize = vocabSize;
    this.#nextTokens = nextTokens;
    this.#lengthMax = prng.pick([1, 3, 12]);
  }

  draft(decodes: readonly RequestState[]): (Int32Array | undefined)[] {
    const prng = this.#prng;
    return decodes.map(({ request }) => {
      if (prng.chance(0.2)) return undefined;
      const right = this.#nextTokens(request.id);
      const drafts = Int32Array.from({ length: prng.between(1, this.#lengthMax) }, (_, i) => right[i] ?? 2);
      if (prng.chance(0.6)) drafts[prng.between(0, drafts.length - 1)] = prng.between(0, this.#vocabSize - 1);
      return drafts;
    });
  }

  verified(): void {}

  observe(): void {}
}
