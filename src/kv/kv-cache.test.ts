import { expect, test } from 'vitest';
import { sha256 } from '../base/sha256.ts';
import { type BlockCount, blockIndex, type TokenCount } from '../core/ids.ts';
import { TokenBuffer } from '../core/tokens.ts';
import { KvCache } from './kv-cache.ts';

const cacheOf = (blocks: number) =>
  new KvCache(
    {
      groups: [{ kind: 'full', blockSize: 4 as TokenCount, layers: [0] }],
      blockBytes: 64,
      blockCount: (blocks + 1) as BlockCount,
      fingerprint: 'test',
    },
    { enablePrefixCaching: true, hash: sha256 },
  );
const range = (count: number) => Array.from({ length: count }, (_, i) => i);

function computeAll(cache: KvCache, tokens: number[]) {
  const request = cache.open(new TokenBuffer(tokens), undefined);
  expect(cache.canAdmit(request, 0)).toBe(true);
  cache.admit(request);
  cache.commitTokens(request, cache.scheduleTokens(request, Infinity));
  cache.checkInvariants(true);
  return request;
}

test('cached blocks after an evicted block are still used', () => {
  const cache = cacheOf(12);
  const first = computeAll(cache, range(18));
  const invalid = first.tables[0]!.at(blockIndex(1));
  const kept = [0, 2, 3].map((index) => first.tables[0]!.at(blockIndex(index)));
  cache.close(first);
  cache.parts.pool.evict(invalid);

  const second = cache.open(new TokenBuffer(range(18)), undefined);
  expect(cache.canAdmit(second, 0)).toBe(true);
  cache.admit(second);
  expect(second.spans.toArray()).toEqual([
    { start: 4, end: 8 },
    { start: 16, end: 18 },
  ]);
  expect([0, 2, 3].map((index) => second.tables[0]!.at(blockIndex(index)))).toEqual(kept);
  cache.checkInvariants(false);
});

test('cached blocks that a request would reference no longer count as available', () => {
  const cache = cacheOf(6);
  cache.close(computeAll(cache, range(16)));
  computeAll(cache, [9]);
  const again = cache.open(new TokenBuffer(range(20)), undefined);
  expect(cache.canAdmit(again, 0)).toBe(true);
  expect(cache.canAdmit(again, 1)).toBe(false);
});

test('a request needs no headroom if no other request has blocks', () => {
  const cache = cacheOf(5);
  const request = cache.open(new TokenBuffer(range(20)), undefined);
  expect(cache.canAdmit(request, 1)).toBe(true);
});

test('`admit` rejects an answer of `canAdmit` from before another request released blocks', () => {
  const cache = cacheOf(8);
  const other = computeAll(cache, range(8));
  const request = cache.open(new TokenBuffer(range(12)), undefined);
  cache.canAdmit(request, 0);
  cache.release(other);
  expect(() => cache.admit(request)).toThrow('right before');
});

test('slots are reused, and digests are kept after a preemption', () => {
  const cache = cacheOf(8);
  const request = computeAll(cache, range(8));
  const { chains } = request;
  cache.release(request);
  expect(cache.canAdmit(request, 0)).toBe(true);
  cache.admit(request);
  expect(request.chains).toBe(chains);
  expect(request.spans.toArray()).toEqual([{ start: 7, end: 8 }]);
  cache.close(request);
  expect(cache.open(new TokenBuffer([1]), undefined).slot).toBe(request.slot);
});

test('`checkUnused` finds a block that no request has released', () => {
  const cache = cacheOf(5);
  cache.close(computeAll(cache, range(16)));
  cache.checkUnused();
  const open = cache.open(new TokenBuffer(range(4)), undefined);
  expect(() => cache.checkUnused()).toThrow('1 requests are open');
  cache.close(open);
  cache.checkUnused();
  cache.parts.pool.allocate();
  expect(() => cache.checkUnused()).toThrow('I7: 1 blocks are in use');
});
