import { describe, expect, test } from 'vitest';
import { Prng } from '../base/prng.ts';
import { sha256 } from '../base/sha256.ts';
import type { BlockCount, TokenCount } from '../core/ids.ts';
import { TokenBuffer } from '../core/tokens.ts';
import { BlockForecast, FORECAST_STEPS } from './block-forecast.ts';
import { KvCache } from './kv-cache.ts';

const blockSize = 16;
const newCache = (blocks = 1000, size = blockSize): KvCache =>
  new KvCache(
    {
      groups: [{ kind: 'full', blockSize: size as TokenCount, layers: [0] }],
      blockBytes: 64,
      blockCount: (blocks + 1) as BlockCount,
      fingerprint: 'test',
    },
    { enablePrefixCaching: true, hash: sha256 },
  );

/** A request that has blocks for its tokens, all of which the step computes. */
function admitted(cache: KvCache, tokens: number[]) {
  const request = cache.open(new TokenBuffer(tokens), undefined);
  expect(cache.canAdmit(request, 0)).toBe(true);
  cache.admit(request);
  cache.scheduleTokens(request, Infinity);
  return request;
}

let requests = 0;
const ownTokens = (count: number): number[] => Array.from({ length: count }, (_, i) => 1000 * ++requests + i);

describe('BlockForecast', () => {
  test('a request needs a block when its last block is full, and its blocks are available after its last token', () => {
    const cache = newCache();
    const forecast = new BlockForecast(cache.parts);
    const first = admitted(cache, ownTokens(15));
    forecast.add(first, 100);
    expect([forecast.peak(), forecast.toEnd]).toEqual([1, 7]);
    // Ends after step 1, in which the other request needs no block yet.
    const ending = admitted(cache, ownTokens(40));
    forecast.add(ending, 2);
    expect([forecast.peak(), forecast.toEnd]).toEqual([0, 7]);
    // Needs its block one step before the other request ends.
    const early = cache.open(new TokenBuffer(ownTokens(16)), undefined);
    forecast.addGrowth(early, 100, 1);
    expect(forecast.peak()).toBe(1);
    forecast.addGrowth(early, 100, -1);
    expect([forecast.peak(), forecast.toEnd]).toEqual([0, 7]);
    forecast.clear();
    expect([forecast.peak(), forecast.toEnd]).toEqual([0, 0]);
  });

  test('blocks that other requests or transfers have do not count as available', () => {
    const cache = newCache();
    const forecast = new BlockForecast(cache.parts);
    const tokens = ownTokens(32);
    const [one, two] = [admitted(cache, tokens), admitted(cache, tokens)];
    forecast.add(one, 1);
    forecast.add(two, 1);
    for (let i = 0; i < 2; i++) forecast.addGrowth(cache.open(new TokenBuffer(ownTokens(16)), undefined), 50, 1);
    expect(forecast.peak()).toBe(2);
  });

  test('a forecast with blocks of fewer tokens covers the tokens of one block', () => {
    const cache = newCache(100, 4);
    const forecast = new BlockForecast(cache.parts);
    forecast.add(admitted(cache, ownTokens(7)), 100);
    expect(forecast.peak()).toBe(1);
  });

  test('the peak and the total equal those of naive counting', () => {
    for (let seed = 0; seed < 200; seed++) {
      const prng = new Prng(seed);
      const cache = newCache();
      const forecast = new BlockForecast(cache.parts);
      const states = Array.from({ length: prng.between(1, 12) }, () => ({
        request: admitted(cache, ownTokens(prng.between(1, 60))),
        tokensMax: prng.between(1, prng.pick([3, 10, 60])),
      }));
      for (const { request, tokensMax } of states) forecast.add(request, tokensMax);
      const blocksIn = (step: number): number =>
        states.reduce((sum, { request: { tokens }, tokensMax }) => {
          return sum + (step < tokensMax ? Math.ceil((tokens.length + step) / blockSize) : 0);
        }, 0);
      const before = blocksIn(0);
      const steps = Array.from({ length: FORECAST_STEPS }, (_, step) => blocksIn(step) - before);
      expect(forecast.peak()).toBe(Math.max(...steps));
      const atEnds = states.map(({ request: { tokens }, tokensMax }) => tokens.length + tokensMax - 1);
      expect(forecast.toEnd).toBe(atEnds.reduce((sum, tokens) => sum + Math.ceil(tokens / blockSize), 0) - before);
    }
  });
});
