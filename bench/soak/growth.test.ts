import { describe, expect, it } from 'vitest';
import { Prng } from '../../src/base/prng.ts';
import { linearFit } from '../statistics.ts';
import { growthOf, type Sample } from './growth.ts';

const MiB = 1 << 20;

/** Samples of 30 minutes: noise, and a growth per hour. */
function samplesOf(perHour: number, noise: number, minutes = 30): Sample[] {
  const prng = new Prng(7);
  const count = 400;
  return Array.from({ length: count }, (_, i) => {
    const hours = (minutes / 60) * (i / count);
    return {
      ms: hours * 3_600_000,
      heap: 20 * MiB + perHour * hours + noise * (prng.unit() - 0.5),
      files: 40 + (i % 3),
    };
  });
}

describe('a linear fit', () => {
  it('has the slope and its standard error', () => {
    expect(
      linearFit([
        [0, 1],
        [1, 3],
        [2, 5],
      ]),
    ).toEqual({ slope: 2, error: 0 });
    // By hand: residuals 1/6, -1/3, 1/6; their squares sum to 1/6.
    const { slope, error } = linearFit([
      [0, 0],
      [1, 0],
      [2, 1],
    ]);
    expect(slope).toBeCloseTo(0.5, 12);
    expect(error).toBeCloseTo(Math.sqrt(1 / 6 / 2), 12);
  });
});

describe('the growth of a process', () => {
  const heapOf = (samples: readonly Sample[]) => growthOf(samples).find(({ measure }) => measure === 'heap')!;

  it('is no leak if it is within the noise', () => {
    for (const { isLeak } of growthOf(samplesOf(0, 10 * MiB))) expect(isLeak).toBe(false);
  });

  it('is a leak if it is certain, also below the noise of single samples', () => {
    const heap = heapOf(samplesOf(12 * MiB, 5 * MiB));
    expect(heap.isLeak).toBe(true);
    expect(Math.abs(heap.perHour - 12 * MiB)).toBeLessThan(4 * heap.error);
  });

  it('may be larger in a short run, which is all warm-up', () => {
    const perHour = 600 * MiB;
    expect(heapOf(samplesOf(perHour, 0, 0.5)).isLeak).toBe(false);
    expect(heapOf(samplesOf(perHour, 0, 30)).isLeak).toBe(true);
  });

  it('has no measure that the system does not count, and needs some samples', () => {
    expect(growthOf(samplesOf(0, 0)).map(({ measure }) => measure)).toEqual(['heap', 'files']);
    expect(growthOf(samplesOf(0, 0).slice(0, 5))).toEqual([]);
  });
});
