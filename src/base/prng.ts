import { assert } from './assert.ts';

/**
 * A small seeded generator for tests, fuzzers and the simulator: equal seeds give equal runs, bit for bit, on every
 * machine. Do not use it for sampling tokens or for secrets.
 *
 * sfc32 (Chris Doty-Humphrey, PractRand): 128 bits of state, passes PractRand and BigCrush.
 */
export class Prng {
  #a: number;
  #b: number;
  #c: number;
  #counter = 1;

  constructor(seed: number) {
    this.#a = 0x9e3779b9;
    this.#b = seed >>> 0;
    this.#c = Math.floor(seed / 2 ** 32) >>> 0;
    for (let round = 0; round < 12; round++) this.uint32();
  }

  /** Uniform in [0, 2^32). */
  uint32(): number {
    const sum = (this.#a + this.#b + this.#counter) | 0;
    this.#counter = (this.#counter + 1) | 0;
    this.#a = this.#b ^ (this.#b >>> 9);
    this.#b = (this.#c + (this.#c << 3)) | 0;
    this.#c = (this.#c << 21) | (this.#c >>> 11);
    this.#c = (this.#c + sum) | 0;
    return sum >>> 0;
  }

  /** Uniform in [0, 1). */
  unit(): number {
    return this.uint32() / 2 ** 32;
  }

  /** Uniform integer in [low, high], both included. The bias is below (high - low) / 2^32. */
  between(low: number, high: number): number {
    // The message is built only if the check fails, because fuzzers draw millions of times.
    if (high < low) assert(false, `empty range [${low}, ${high}]`);
    return low + Math.floor(this.unit() * (high - low + 1));
  }

  chance(probability: number): boolean {
    return this.unit() < probability;
  }

  pick<T>(items: readonly T[]): T {
    assert(items.length > 0, 'nothing to pick from');
    return items[this.between(0, items.length - 1)]!;
  }

  /** A new generator, so that the draws of one consumer do not change those of another. */
  fork(): Prng {
    return new Prng(this.uint32() * 2 ** 20 + (this.uint32() >>> 12));
  }
}
