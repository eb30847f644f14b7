import { expect, test } from 'vitest';
import { sha256 } from '../base/sha256.ts';
import type { BlockCount, TokenCount } from '../core/ids.ts';
import { TokenBuffer } from '../core/tokens.ts';
import type { CacheEvent } from './cache-events.ts';
import { KvCache } from './kv-cache.ts';

const range = (count: number) => Array.from({ length: count }, (_, i) => i);

function newCache(blocks: number) {
  const groups = [{ kind: 'full' as const, blockSize: 4 as TokenCount, layers: [0] }];
  const spec = { groups, blockBytes: 64, blockCount: (blocks + 1) as BlockCount, fingerprint: 'test' };
  const cache = new KvCache(spec, { enablePrefixCaching: true, hash: sha256 });
  return { cache, log: cache.recordEvents() };
}

function admit(cache: KvCache, tokens: number[], salt?: string) {
  const request = cache.open(new TokenBuffer(tokens), salt);
  expect(cache.canAdmit(request, 0)).toBe(true);
  cache.admit(request);
  return request;
}

function compute(cache: KvCache, tokens: number[], salt?: string) {
  const request = admit(cache, tokens, salt);
  cache.commitTokens(request, cache.scheduleTokens(request, Infinity));
  return request;
}

const digests = (events: readonly CacheEvent[]) =>
  events.map((event) => (event.kind === 'cleared' ? event.kind : `${event.kind} ${event.digest[0]}`));

test('full blocks are stored with their tokens, and with the digest of the block before', () => {
  const { cache, log } = newCache(8);
  compute(cache, range(10), 'secret');
  const [first, second, ...others] = log.take();
  expect(first).toMatchObject({ kind: 'stored', parent: undefined, cacheSalt: 'secret' });
  expect(second).toMatchObject({ kind: 'stored', cacheSalt: undefined });
  if (first?.kind !== 'stored' || second?.kind !== 'stored') throw new Error('two blocks are stored');
  expect(second.parent).toEqual(first.digest);
  expect([...first.tokens, ...second.tokens]).toEqual(range(8));
  expect(others).toEqual([]);
});

test('a block is removed when the pool allocates it for other tokens', () => {
  const { cache, log } = newCache(3);
  cache.close(compute(cache, range(12)));
  const stored = log.take();
  compute(cache, [90, 91, 92, 93, 94]);
  const [last, middle] = [stored[2], stored[1]];
  expect(digests(log.take())).toEqual([
    ...digests([last!, middle!]).map((name) => name.replace('stored', 'removed')),
    expect.stringContaining('stored'),
  ]);
});

test('two blocks with the same tokens are stored once, and removed with the last one', () => {
  const { cache, log } = newCache(4);
  // Both decode the tokens of their second block, each into a block of its own.
  const requests = [admit(cache, range(5)), admit(cache, range(5))];
  const decode = (): void => {
    for (const request of requests) cache.commitTokens(request, cache.scheduleTokens(request, Infinity));
  };
  decode();
  for (let token = 5; token < 8; token++) {
    for (const request of requests) {
      request.tokens.push(token as never);
      cache.tokenAppended(request);
    }
    decode();
  }
  expect(cache.parts.cached.size).toBe(3);
  expect(log.take()).toHaveLength(2);
  const [first, second] = requests.map((request) => request.tables[0]!.ids[1]!);
  cache.invalidate([first as never]);
  expect(log.take()).toEqual([]);
  cache.invalidate([second as never]);
  expect(log.take()).toMatchObject([{ kind: 'removed' }]);
});

test('a reset keeps the blocks of requests, and is one event if none stays', () => {
  const { cache, log } = newCache(8);
  cache.close(compute(cache, range(8)));
  const running = compute(cache, range(4).concat(50));
  log.take();
  expect(cache.resetPrefixCache(true)).toBe(1);
  expect(log.take()).toMatchObject([{ kind: 'removed' }]);
  cache.checkInvariants(true);
  cache.close(running);
  expect(cache.resetPrefixCache(true)).toBe(0);
  expect(log.take()).toEqual([{ kind: 'cleared' }]);
  cache.checkUnused();
});

test('places below the pool keep their blocks, so a reset then names the blocks of the pool', () => {
  const { cache, log } = newCache(8);
  cache.close(compute(cache, range(8)));
  log.take();
  expect(cache.resetPrefixCache(false)).toBe(0);
  expect(log.take()).toMatchObject([{ kind: 'removed' }, { kind: 'removed' }]);
});
