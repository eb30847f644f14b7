import { describe, expect, it } from 'vitest';
import { measureGrowth } from '../../../test/support/memory-growth.ts';
import { suiteKey } from '../tier/tier.suite.ts';
import { LeftHost } from './left-host.ts';

describe('LeftHost', () => {
  it('has the blocks that left host memory, until a look-up does not find them', () => {
    const left = new LeftHost();
    expect(left.has(suiteKey(1))).toBe(false);
    left.delete(suiteKey(1));
    for (const key of [suiteKey(1), suiteKey(2), suiteKey(1)]) left.add(key);
    expect([left.has(suiteKey(1)), left.has(suiteKey(2)), left.has(suiteKey(3))]).toEqual([true, true, false]);
    expect(left.has(suiteKey(1, 1))).toBe(false);
    left.delete(suiteKey(1));
    expect([left.has(suiteKey(1)), left.has(suiteKey(2))]).toEqual([false, true]);
  });

  it('has nearly all of the newest 16,000 of any number of blocks, and forgets old ones', () => {
    const left = new LeftHost();
    const count = 130_000;
    for (let i = 0; i < count; i++) left.add(suiteKey(i));
    const known = (first: number): number => {
      let sum = 0;
      for (let i = first; i < first + 16_000; i++) if (left.has(suiteKey(i))) sum++;
      return sum;
    };
    expect(known(count - 16_000)).toBeGreaterThan(15_900);
    expect(known(0)).toBeLessThan(1600);
  });

  it('keeps a block that leaves host memory again and again', () => {
    const left = new LeftHost();
    for (let i = 0; i < 60_000; i++) {
      left.add(suiteKey(i));
      if (i % 4096 === 0) left.add(suiteKey('often'));
    }
    expect(left.has(suiteKey('often'))).toBe(true);
  });

  it('forgets no block for the sake of blocks that a look-up did not find', () => {
    const left = new LeftHost();
    left.add(suiteKey('kept'));
    for (let i = 0; i < 130_000; i++) {
      left.add(suiteKey(i));
      left.delete(suiteKey(i));
    }
    expect(left.has(suiteKey('kept'))).toBe(true);
  });

  it('needs no more memory for more blocks', async () => {
    const left = new LeftHost();
    left.add(suiteKey('first'));
    let next = 0;
    const add = async (count: number): Promise<void> => {
      for (let i = 0; i < count; i++) left.add(suiteKey(next++));
      await Promise.resolve();
    };
    const { heap } = await measureGrowth(add, { windows: 8, unitsPerWindow: 5000 });
    expect(heap).toBeLessThan(16);
    expect(left.has(suiteKey(next - 1))).toBe(true);
  });
});
