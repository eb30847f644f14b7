import { describe, expect, it } from 'vitest';
import { Prng } from '../src/base/prng.ts';
import { median, medianInterval } from './statistics.ts';

const upTo = (count: number): number[] => Array.from({ length: count }, (_, i) => i + 1);

describe('medianInterval', () => {
  // From tables of the sign test: the ranks of the ends for at least 95 %.
  it.each([
    [6, 1, 6],
    [8, 1, 8],
    [9, 2, 8],
    [12, 3, 10],
    [20, 6, 15],
    [25, 8, 18],
    [30, 10, 21],
    [40, 14, 27],
  ])('of %i values it goes from the value of rank %i to that of rank %i', (count, low, high) => {
    expect(medianInterval(upTo(count).reverse())).toEqual({ median: (count + 1) / 2, low, high });
  });

  it('of fewer than six values is their range', () => {
    expect(medianInterval([3, 1, 2])).toEqual({ median: 2, low: 1, high: 3 });
    expect(medianInterval([7])).toEqual({ median: 7, low: 7, high: 7 });
  });

  it('has the median of the distribution in 95 % of all samples', () => {
    const prng = new Prng(1);
    let hits = 0;
    for (let sample = 0; sample < 2_000; sample++) {
      const { low, high } = medianInterval(upTo(20).map(() => prng.unit() ** 3));
      if (low <= 0.125 && high >= 0.125) hits++;
    }
    expect(hits / 2_000).toBeGreaterThan(0.945);
  });
});

describe('median', () => {
  it('is the middle value, or between the two in the middle', () => {
    expect([median([3, 1, 2]), median([4, 1, 2, 3])]).toEqual([2, 2.5]);
  });
});
