import { describe, expect, test } from 'vitest';
import { Prng } from '../../base/prng.ts';
import { TokenBuffer } from '../../core/tokens.ts';
import { readSpeculativeConfig, type SuffixOptions } from './options.ts';
import { ResponseCache } from './response-cache.ts';
import { SuffixFinder } from './suffix-finder.ts';

const options = readSpeculativeConfig({ method: 'suffix' }) as SuffixOptions;
const depth = options.suffixDecodingMaxTreeDepth;
const output = (first: number, length = 40) => Int32Array.from({ length }, (_, i) => first + i);

/** The next tokens after a text that ends as the output did. */
function draftsAfter(cache: ResponseCache, start: Int32Array, salt?: string): number[] | undefined {
  const found = new SuffixFinder(new TokenBuffer(start), options, salt, cache).find();
  return found && [...found.tokens];
}

const isKept = (cache: ResponseCache, first: number, salt?: string): boolean =>
  draftsAfter(cache, output(first, 8), salt) !== undefined;

describe('earlier outputs', () => {
  test('continue the text of a request with the same salt only', () => {
    const cache = new ResponseCache(depth, 100, 5000);
    cache.add('mine', output(1000));
    cache.add(undefined, output(2000));
    const [first, other] = [output(1000, 8), output(2000, 8)];
    expect(draftsAfter(cache, first, 'mine')).toEqual([...output(1008, 8)]);
    for (const salt of ['yours', 'min', '', undefined]) expect(draftsAfter(cache, first, salt), salt).toBeUndefined();
    expect(draftsAfter(cache, other)).toEqual([...output(2008, 8)]);
    expect(draftsAfter(cache, other, 'mine')).toBeUndefined();
  });

  test('continue a text that other salts have too with the tokens of the own salt', () => {
    const cache = new ResponseCache(depth, 100, 5000);
    const start = [...output(50, 8)];
    for (let i = 0; i < 5; i++) cache.add('yours', Int32Array.from([...start, 7, 7, 7]));
    cache.add('mine', Int32Array.from([...start, 8, 9]));
    expect(draftsAfter(cache, Int32Array.from(start), 'mine')).toEqual([8, 9]);
    expect(draftsAfter(cache, Int32Array.from(start), 'yours')).toEqual([7, 7, 7]);
  });

  test.each([1, 2, 3, 10])('are forgotten if %i newer ones are kept', (responsesMax) => {
    const cache = new ResponseCache(depth, responsesMax, 5000);
    for (let i = 0; i < 30; i++) {
      cache.add(undefined, output(1000 * (i + 1)));
      cache.checkInvariants();
      const kept = Array.from({ length: i + 1 }, (_, other) => isKept(cache, 1000 * (other + 1)));
      const count = kept.filter(Boolean).length;
      expect(kept.slice(i + 1 - count)).not.toContain(false);
      expect(count).toBeGreaterThanOrEqual(Math.min(i + 1, Math.max(Math.floor(responsesMax / 2), 1)));
      expect(count).toBeLessThanOrEqual(responsesMax);
    }
  });
});

describe('the memory of earlier outputs', () => {
  test('does not grow with their number, their length or their salts', () => {
    const cache = new ResponseCache(depth, 1_000_000, 5000);
    const bytes = cache.byteLength;
    const prng = new Prng(3);
    for (let i = 0; i < 300; i++) {
      const salt = prng.pick([undefined, 'a', `tenant-${i}`, 'x'.repeat(prng.between(1, 6000))]);
      const vocab = prng.pick([1, 2, 50_000]);
      cache.add(
        salt,
        Int32Array.from({ length: prng.pick([2, 100, 3000, 20_000]) }, () => prng.between(0, vocab - 1)),
      );
      if (i % 10 === 0) cache.checkInvariants();
      expect(cache.byteLength).toBeLessThanOrEqual(2 * bytes);
    }
    expect(cache.byteLength).toBe(2 * bytes);
  });

  test("is 72 MB with vLLM's defaults", () => {
    const cache = new ResponseCache(depth, options.suffixDecodingMaxCachedRequests);
    expect(cache.byteLength).toBeLessThan(36e6);
    const prng = new Prng(4);
    const random = (): Int32Array => Int32Array.from({ length: 4096 }, () => prng.between(0, 99_999));
    for (let i = 0; i < 130; i++) cache.add(undefined, random());
    expect(cache.byteLength).toBeGreaterThan(36e6);
    expect(cache.byteLength).toBeLessThan(72e6);
  });

  test('has only the last tokens of a long output', () => {
    const cache = new ResponseCache(depth, 10, 5000);
    cache.add(undefined, output(0, 10_000));
    expect(isKept(cache, 5500)).toBe(false);
    expect(isKept(cache, 6000)).toBe(true);
    expect(isKept(cache, 9000)).toBe(true);
  });

  test('has no output with a salt that is too long for it, and no output of one token', () => {
    const cache = new ResponseCache(depth, 10, 1000);
    cache.add('x'.repeat(1000), output(1000));
    cache.add(undefined, output(2000, 1));
    expect(cache.younger.responses).toBe(0);
  });
});
