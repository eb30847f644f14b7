import { expect, test } from 'vitest';
import { sha256 } from '../base/sha256.ts';
import { type BlockCount, blockIndex, type TokenCount, type TokenId } from '../core/ids.ts';
import type { KvCacheSpec, KvGroupSpec } from '../core/kv-spec.ts';
import { TokenBuffer } from '../core/tokens.ts';
import { blocksMax, longestRequest } from './create-group.ts';
import { KvCache } from './kv-cache.ts';
import type { KvRequest } from './kv-request.ts';

const four = 4 as TokenCount;
const full: KvGroupSpec = { kind: 'full', blockSize: four, layers: [0] };
const window8: KvGroupSpec = { kind: 'window', blockSize: four, layers: [1], window: 8 as TokenCount };
const state: KvGroupSpec = { kind: 'state', blockSize: four, layers: [2] };

const specOf = (groups: KvGroupSpec[], blocks: number): KvCacheSpec => ({
  groups,
  blockBytes: 64,
  blockCount: (blocks + 1) as BlockCount,
  fingerprint: 'test',
});
const cacheOf = (groups: KvGroupSpec[], blocks: number) =>
  new KvCache(specOf(groups, blocks), { enablePrefixCaching: true, hash: sha256 });
const range = (count: number) => Array.from({ length: count }, (_, i) => i);

function admit(cache: KvCache, tokens: number[]): KvRequest {
  const request = cache.open(new TokenBuffer(tokens), undefined);
  expect(cache.canAdmit(request, 0)).toBe(true);
  cache.admit(request);
  return request;
}

function compute(cache: KvCache, request: KvRequest, chunk: number): void {
  for (;;) {
    const tokens = cache.scheduleTokens(request, chunk);
    if (tokens.length === 0) break;
    cache.commitTokens(request, tokens);
    cache.checkInvariants(true);
  }
  expect(request.isOutOfBlocks).toBe(false);
}

const allocated = (cache: KvCache) => cache.parts.spec.blockCount - 1 - cache.parts.pool.available;
const blocksAllocated = (request: KvRequest, group: number) =>
  range(request.tables[group]!.length)
    .map(blockIndex)
    .filter((index) => request.tables[group]!.at(index) !== 0);

test('a long prompt in a window group needs only the blocks of one window', () => {
  const spec = specOf([window8], 0);
  // Eight consecutive tokens are in three blocks of four at most.
  expect(blocksMax(spec, 1000)).toBe(3);
  const cache = cacheOf([window8], 3);
  const request = admit(cache, range(1000));
  compute(cache, request, 64);
  // Token 1000 reads tokens from 993 on.
  expect(blocksAllocated(request, 0)).toEqual([248, 249]);
  expect(allocated(cache)).toBe(2);
});

test('a decoding request releases a block of a window group as soon as no later token reads it', () => {
  const cache = cacheOf([full, window8], 40);
  const request = admit(cache, range(10));
  compute(cache, request, 64);
  const seen: number[][] = [];
  for (let token = 10; token < 18; token++) {
    request.tokens.push(token as TokenId);
    cache.tokenAppended(request);
    compute(cache, request, 64);
    seen.push(blocksAllocated(request, 1));
  }
  // After 11 tokens, token 11 reads 4 to 11, so block 0 is released. The full group keeps all blocks.
  expect(seen.slice(0, 2)).toEqual([
    [1, 2],
    [1, 2],
  ]);
  expect(seen.at(-1)).toEqual([2, 3, 4]);
  expect(blocksAllocated(request, 0)).toEqual([0, 1, 2, 3, 4]);
});

test('a prefix hit references all blocks of a full group, and of a window group only those that are read', () => {
  const cache = cacheOf([full, window8], 40);
  cache.close(computed(cache, range(32)));
  const request = admit(cache, [...range(32), 100, 101]);
  expect(request.spans.toArray()).toEqual([{ start: 32, end: 34 }]);
  // Token 32 reads tokens from 25 on.
  expect(blocksAllocated(request, 1)).toEqual([6, 7]);
});

test('a request in a state group starts from the last checkpoint and references no other', () => {
  const cache = cacheOf([state], 10);
  cache.close(computed(cache, range(18)));
  const request = admit(cache, [...range(18), 100]);
  expect(request.spans.toArray()).toEqual([{ start: 16, end: 19 }]);
  expect(blocksAllocated(request, 0)).toEqual([3]);
  expect(blocksMax(cache.parts.spec, 1000)).toBe(3);
});

test('a fully cached prompt starts from the last checkpoint before its last token', () => {
  const cache = cacheOf([state], 10);
  cache.close(computed(cache, range(16)));
  expect(admit(cache, range(16)).spans.toArray()).toEqual([{ start: 12, end: 16 }]);
});

test('tokens that are computed again in a block with a needed checkpoint do not overwrite the checkpoint', () => {
  const two = 2 as TokenCount;
  const cache = cacheOf([{ ...full, blockSize: two }, state], 40);
  const request = admit(cache, range(15));
  compute(cache, request, 64);
  request.tokens.push(99 as TokenId);
  cache.tokenAppended(request);
  // The state after 15 tokens is at block index 3. In the full group tokens 12 and 13 become invalid, so tokens of this
  // block are computed again.
  const running = request.tables[1]!.at(blockIndex(3));
  cache.invalidate([request.tables[0]!.at(blockIndex(6))]);
  const repair = cache.scheduleTokens(request, 1);
  expect(repair).toEqual([{ start: 12, end: 13 }]);
  expect(request.tables[1]!.at(blockIndex(3))).not.toBe(running);
  cache.commitTokens(request, repair);
  const rest = cache.scheduleTokens(request, 64);
  expect(rest).toEqual([{ start: 13, end: 14 }]);
  cache.commitTokens(request, rest);
  expect(request.tables[1]!.at(blockIndex(3))).toBe(running);
  expect(cache.scheduleTokens(request, 64)).toEqual([{ start: 15, end: 16 }]);
});

test('a window of 1 is rejected', () => {
  expect(() => cacheOf([{ ...window8, window: 1 as TokenCount }], 4)).toThrow('does not include the token before');
});

function computed(cache: KvCache, tokens: number[]): KvRequest {
  const request = admit(cache, tokens);
  compute(cache, request, 64);
  return request;
}

test('the longest request of a pool has as many blocks in all groups as the pool has', () => {
  expect(longestRequest(specOf([full], 10), 1000)).toBe(40);
  expect(longestRequest(specOf([full], 10), 30)).toBe(30);
  const spec = specOf([full, window8], 10);
  const longest = longestRequest(spec, 1000);
  expect(blocksMax(spec, longest)).toBeLessThanOrEqual(10);
  expect(blocksMax(spec, longest + 1)).toBeGreaterThan(10);
  expect(longest).toBe(28);
});
