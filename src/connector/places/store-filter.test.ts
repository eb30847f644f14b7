import { describe, expect, it } from 'vitest';
import type { RequestId } from '../../core/ids.ts';
import { type BlockId, type BlockIndex, groupIndex } from '../../core/ids.ts';
import type { ValidBlock } from '../connector.ts';
import { suiteKey } from '../tier/tier.suite.ts';
import { blocksOf, StoreFilter } from './store-filter.ts';

const valid = (index: number, group = 0): ValidBlock => ({
  group: groupIndex(group),
  index: index as BlockIndex,
  key: suiteKey(index, group),
  block: (index + 1) as BlockId,
  requestId: 'r' as RequestId,
});
const filter = (options: Partial<ConstructorParameters<typeof StoreFilter>[0]> = {}) =>
  new StoreFilter({ storeThreshold: 0, trackedOffersMax: 100, blocksPerChunk: [1], ...options });

describe('StoreFilter', () => {
  it.each([0, 1])('with a threshold of %d, a block is stored at its first offer', (storeThreshold) => {
    expect(filter({ storeThreshold }).isOftenNeeded(suiteKey(1))).toBe(true);
  });

  it('with a threshold of 3, a block is stored at its third offer, and then counted anew', () => {
    const stored = filter({ storeThreshold: 3 });
    const offers = Array.from({ length: 6 }, () => stored.isOftenNeeded(suiteKey(1)));
    expect(offers).toEqual([false, false, true, false, false, true]);
  });

  it('forgets the block that was offered longest ago', () => {
    const stored = filter({ storeThreshold: 2, trackedOffersMax: 2 });
    for (const i of [1, 2, 3]) {
      stored.stepBegins();
      expect(stored.isOftenNeeded(suiteKey(i))).toBe(false);
    }
    expect(stored.isOftenNeeded(suiteKey(3))).toBe(true);
    expect(stored.isOftenNeeded(suiteKey(1))).toBe(false);
  });

  /** Each step offers these blocks. Returns those that are stored. */
  const offer = (stored: StoreFilter, ...blocks: number[]): number[] => {
    stored.stepBegins();
    return blocks.filter((i) => stored.isOftenNeeded(suiteKey(i)));
  };

  it('filter_reused_manager: a block that is not among the last three is counted anew', () => {
    const stored = filter({ storeThreshold: 2, trackedOffersMax: 3 });
    expect(offer(stored, 1, 2)).toEqual([]);
    expect(offer(stored, 1, 2)).toEqual([1, 2]);
    // Stored blocks leave the record, which has room for three others.
    expect(offer(stored, 3, 4)).toEqual([]);
    expect(offer(stored, 5, 6)).toEqual([]);
    expect(offer(stored, 3)).toEqual([]);
    expect(offer(stored, 5, 6)).toEqual([5, 6]);
  });

  it('filter_reused_manager_oversized_offer_makes_progress: an offer of four blocks, and a record of three', () => {
    const stored = filter({ storeThreshold: 2, trackedOffersMax: 3 });
    const left = new Set([1, 2, 3, 4]);
    for (let i = 0; i < 4; i++) for (const block of offer(stored, ...left)) left.delete(block);
    expect([...left]).toEqual([]);
  });

  it('a chunk is complete when its last block in any order becomes valid', () => {
    const chunks = filter({ blocksPerChunk: [3] }).newChunks()!;
    expect(chunks.add(valid(0))).toBeUndefined();
    expect(chunks.add(valid(2))).toBeUndefined();
    expect(chunks.add(valid(3))).toBeUndefined();
    expect(chunks.add(valid(1))).toEqual([suiteKey(0), suiteKey(1), suiteKey(2)]);
  });

  it('blocks of a prefix hit count for their chunk', () => {
    const chunks = filter({ blocksPerChunk: [2, 1] }).newChunks()!;
    chunks.addValid(valid(4));
    expect(chunks.add(valid(5))).toEqual([suiteKey(4), suiteKey(5)]);
    expect(chunks.add(valid(7, 1))).toEqual([suiteKey(7, 1)]);
  });

  it('needs no chunks if every block is one', () => {
    expect(filter({ blocksPerChunk: [1, 1] }).newChunks()).toBeUndefined();
  });

  it('of a chunk, the blocks that the pool still has are saved', () => {
    const inPool = new Map([[suiteKey(1), 7 as BlockId]]);
    expect(blocksOf([suiteKey(0), suiteKey(1)], (key) => inPool.get(key))).toEqual([{ key: suiteKey(1), block: 7 }]);
  });
});
