import type { Prng } from '../src/base/prng.ts';
import type { SliceChoice } from '../src/scheduler/layered-prefill.ts';
import type { Slice, SliceOptions } from '../src/scheduler/slice-sizes.ts';
import type { StepLoad } from '../src/scheduler/step-load.ts';

/** Chunks by layers of any size, although the prompts of the simulator are shorter than those for which they are worth it. */
export class RandomSlices implements SliceChoice {
  readonly #prng: Prng;

  constructor(prng: Prng) {
    this.#prng = prng;
  }

  sliceOf(_load: StepLoad, { tokensMax, layerCount }: SliceOptions): Slice | undefined {
    if (this.#prng.chance(0.3)) return undefined;
    return { tokens: this.#prng.between(1, tokensMax), layers: this.#prng.between(1, layerCount) };
  }
}
