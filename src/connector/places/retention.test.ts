import { describe, expect, test } from 'vitest';
import { type BlockIndex, groupIndex } from '../../core/ids.ts';
import type { KvBlock } from '../connector.ts';
import { suiteKey } from '../tier/tier.suite.ts';
import { Retention } from './retention.ts';

const full = { blockSize: 16, layers: [0] };
const window64 = { blockSize: 16, layers: [1], readsBack: 63 };
const state32 = { blockSize: 32, layers: [2], readsBack: 1 };
const groups = [full, window64, state32];

const block = (group: number, index: number): KvBlock => ({
  group: groupIndex(group),
  index: index as BlockIndex,
  key: suiteKey(index, group),
});
/** The indices of a group's blocks that are stored while `tokens` tokens become valid. */
function stored(
  retention: ReturnType<Retention['newRequest']>,
  group: number,
  tokens: number,
  from = 0,
  { blockSize } = groups[group]!,
): number[] {
  const indices: number[] = [];
  for (let index = from / blockSize; (index + 1) * blockSize <= tokens; index++)
    if (retention.isStored(block(group, index))) indices.push(index);
  return indices;
}
const places = (blocks: readonly KvBlock[]): string[] => blocks.map(({ group, index }) => `${group}/${index}`);

describe('Retention', () => {
  test('without an interval, or without two kinds of groups, all blocks are stored', () => {
    expect(Retention.of(groups, undefined)).toBeUndefined();
    expect(Retention.of([full], 0)).toBeUndefined();
    expect(Retention.of([window64, state32], 0)).toBeUndefined();
  });

  test('with 0, the window and the state before the end of the prompt are stored, and all blocks of full attention', () => {
    const request = Retention.of(groups, 0)!.newRequest(330);
    // A request continues at multiples of 32: at 320. It reads tokens 257 to 319.
    expect(stored(request, 0, 330)).toEqual(Array.from({ length: 20 }, (_, i) => i));
    expect(stored(request, 1, 330)).toEqual([16, 17, 18, 19]);
    expect(stored(request, 2, 330)).toEqual([9]);
  });

  /** Of a prompt of 64 tokens, with blocks of 16 and of 4, and a window of 8. */
  function narrowBlocks(interval: number): number[] {
    const [wide, narrow] = [full, { blockSize: 4, layers: [1], readsBack: 7 }];
    const request = Retention.of([wide, narrow], interval)!.newRequest(64);
    expect(stored(request, 0, 64, 0, wide)).toEqual([0, 1, 2, 3]);
    return stored(request, 1, 64, 0, narrow);
  }

  test('retention_interval_sparsifies_swa_stores: the windows before multiples of 32 and before the last position', () => {
    expect(narrowBlocks(32)).toEqual([6, 7, 10, 11, 14, 15]);
  });

  test('retention_interval_zero_stores_only_replay_boundary: also the window that longer prompts read', () => {
    // vLLM: 10 and 11. A longer prompt continues at 64, and reads 14 and 15.
    expect(narrowBlocks(0)).toEqual([10, 11, 14, 15]);
  });

  test('a prompt that ends with a block is stored for the same prompt, too, which continues one position before', () => {
    const request = Retention.of(groups, 0)!.newRequest(320);
    expect(stored(request, 2, 320)).toEqual([8, 9]);
    expect(stored(request, 1, 320)).toEqual([14, 15, 16, 17, 18, 19]);
  });

  test('the end of a shared prefix is stored by the second request that has the prefix', () => {
    const retention = Retention.of(groups, 0)!;
    const request = retention.newRequest(330);
    const wanted = [...Array.from({ length: 20 }, (_, i) => block(0, i)), block(2, 0)];
    const inTier = new Set(wanted.slice(0, 10).map(({ key }) => key));
    request.shares(retention.firstMissing(wanted, (key) => inTier.has(key)));
    // The first ten blocks of full attention are shared: 160 tokens.
    expect(stored(request, 2, 330)).toEqual([4, 9]);
    expect(stored(request, 1, 330)).toEqual([6, 7, 8, 9, 16, 17, 18, 19]);
  });

  test('at the end, the window and the state before the last tokens are stored', () => {
    const request = Retention.of(groups, 0)!.newRequest(330);
    for (const group of [0, 1, 2]) stored(request, group, 330);
    for (const group of [0, 1, 2]) stored(request, group, 400, 320);
    expect(places(request.takeLast())).toEqual(['1/20', '1/21', '1/22', '1/23', '2/11']);
    expect(request.takeLast()).toEqual([]);
  });

  test('with an interval, the windows and states before its multiples are stored', () => {
    const request = Retention.of(groups, 128)!.newRequest(330);
    expect(stored(request, 2, 330)).toEqual([3, 7, 9]);
    expect(stored(request, 1, 330)).toEqual([4, 5, 6, 7, 12, 13, 14, 15, 16, 17, 18, 19]);
    // No request continues between multiples of the block sizes, so 100 means 128.
    expect(stored(Retention.of(groups, 100)!.newRequest(330), 2, 330)).toEqual([3, 7, 9]);
  });
});
