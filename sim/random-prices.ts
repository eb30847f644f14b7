import type { Prng } from '../src/base/prng.ts';
import type { LoadPrices, PlaceCounts } from '../src/scheduler/load-cost.ts';

/** Prices that change at every call, so that any part of the promised blocks may be loaded. */
export class RandomPrices implements LoadPrices {
  readonly isReady = true;
  readonly #prng: Prng;

  constructor(prng: Prng) {
    this.#prng = prng;
  }

  computeMs(spans: readonly { readonly start: number; readonly end: number }[]): number {
    return spans.reduce((ms, { start, end }) => ms + (end - start) * (1 + start / 50) * this.#prng.unit(), 0);
  }

  loadMs(blocks: PlaceCounts): number {
    let ms = 0;
    for (const count of blocks.values()) ms += count * 8 * this.#prng.unit();
    return ms;
  }
}

/** Loading takes longer than computing at all times: blocks are loaded only to measure their place again. */
export const dearLoads: LoadPrices = {
  isReady: true,
  computeMs: (spans) => spans.reduce((ms, { start, end }) => ms + end - start, 0),
  loadMs: (blocks) => [...blocks.values()].reduce((ms, count) => ms + 1000 * count, 0),
};
