import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { tokenId } from './ids.ts';
import { PackedLogprobs } from './packed-logprobs.ts';
import type { TokenLogprobs } from './step.ts';

const entryOf = (topCount: number): fc.Arbitrary<TokenLogprobs> => {
  const token = fc.nat(200_000).map(tokenId);
  const logprob = fc.double({ max: 0, noNaN: true });
  const top = fc.array(fc.record({ token, logprob }), { maxLength: topCount });
  return fc.record({ logprob, rank: fc.integer({ min: 1, max: 200_000 }), top });
};

describe('packed logprobs', () => {
  it('are the values that were packed, of any number, also with fewer top tokens', () => {
    const lists = fc
      .nat(20)
      .chain((topCount) => fc.tuple(fc.constant(topCount), fc.array(entryOf(topCount), { maxLength: 30 })));
    fc.assert(
      fc.property(lists, fc.integer({ min: 1, max: 40 }), ([topCount, entries], copies) => {
        const packed = new PackedLogprobs(topCount);
        const all = Array.from({ length: copies }, () => entries).flat();
        for (const entry of all) packed.push(entry);
        expect(packed.length).toBe(all.length);
        expect([...packed]).toEqual(all);
      }),
      { numRuns: 60 },
    );
  });

  it('of many blocks are the values that were packed', () => {
    const packed = new PackedLogprobs(20);
    const entry = (i: number): TokenLogprobs => ({
      logprob: -i,
      rank: i + 1,
      top: Array.from({ length: i % 21 }, (_, place) => ({ token: tokenId(i + place), logprob: -i / (place + 1) })),
    });
    const all = Array.from({ length: 1000 }, (_, i) => entry(i));
    packed.pushAll(all);
    expect([...packed]).toEqual(all);
    expect(packed.at(777)).toEqual(all[777]);
  });

  it('have a beginning that stays the same', () => {
    const packed = new PackedLogprobs(0);
    packed.push({ logprob: -1, rank: 1, top: [] });
    const first = packed.first(1);
    packed.push({ logprob: -2, rank: 2, top: [] });
    expect([...first]).toEqual([{ logprob: -1, rank: 1, top: [] }]);
  });
});
