import { describe, expect, it } from 'vitest';
import { philox4x32, uniform } from './philox.ts';

/** The lines `philox4x32 10 <counter> <key> <expected>` of Random123's tests/kat_vectors. */
const knownAnswers: readonly (readonly [counter: string, key: string, expected: string])[] = [
  ['00000000 00000000 00000000 00000000', '00000000 00000000', '6627e8d5 e169c58d bc57ac4c 9b00dbd8'],
  ['ffffffff ffffffff ffffffff ffffffff', 'ffffffff ffffffff', '408f276d 41c83b0e a20bc7c6 6d5451fd'],
  ['243f6a88 85a308d3 13198a2e 03707344', 'a4093822 299f31d0', 'd16cfe09 94fdcceb 5001e420 24126ea1'],
];

const words = (text: string) => text.split(' ').map((word) => Number.parseInt(word, 16));
const hex = (values: Iterable<number>) => Array.from(values, (value) => value.toString(16).padStart(8, '0')).join(' ');

function reference(counter: bigint[], key: bigint[]): bigint[] {
  const mask = 0xffffffffn;
  let [c0, c1, c2, c3] = counter as [bigint, bigint, bigint, bigint];
  let [k0, k1] = key as [bigint, bigint];
  for (let round = 0; round < 10; round++) {
    const p0 = c0 * 0xd2511f53n;
    const p1 = c2 * 0xcd9e8d57n;
    [c0, c1, c2, c3] = [(p1 >> 32n) ^ c1 ^ k0, p1 & mask, (p0 >> 32n) ^ c3 ^ k1, p0 & mask];
    k0 = (k0 + 0x9e3779b9n) & mask;
    k1 = (k1 + 0xbb67ae85n) & mask;
  }
  return [c0, c1, c2, c3];
}

describe('philox4x32-10', () => {
  it.each(knownAnswers)('gives the published output for counter %s, key %s', (counter, key, expected) => {
    const out = new Uint32Array(4);
    const [c0, c1, c2, c3] = words(counter) as [number, number, number, number];
    const [k0, k1] = words(key) as [number, number];
    philox4x32(c0, c1, c2, c3, k0, k1, out);
    expect(hex(out)).toBe(expected);
  });

  it('equals the definition in big integers along a chain of a thousand outputs', () => {
    const out = new Uint32Array([1, 2, 3, 4]);
    for (let index = 0; index < 1000; index++) {
      const before = Array.from(out, BigInt);
      const key = [before[3]!, BigInt(index)];
      philox4x32(out[0]!, out[1]!, out[2]!, out[3]!, Number(key[0]), index, out);
      expect(Array.from(out, BigInt)).toEqual(reference(before, key));
    }
  });
});

describe('uniform', () => {
  it('uses 53 bits of the first two words, with the seed as key and the index as counter', () => {
    expect(uniform(0n, 0)).toBe(((0x6627e8d5 >>> 5) * 2 ** 26 + (0xe169c58d >>> 6)) / 2 ** 53);
    const out = new Uint32Array(4);
    philox4x32(7, 3, 0, 0, 0x89abcdef, 0x01234567, out);
    expect(uniform(0x0123456789abcdefn, 3 * 2 ** 32 + 7)).toBe(((out[0]! >>> 5) * 2 ** 26 + (out[1]! >>> 6)) / 2 ** 53);
  });

  it('depends on every bit of the seed', () => {
    const seen = new Set<number>([uniform(0n, 5)]);
    for (let bit = 0n; bit < 64n; bit++) seen.add(uniform(1n << bit, 5));
    expect(seen.size).toBe(65);
  });

  it('is in [0, 1), is uniform over 64 bins, and neighbours are not correlated', () => {
    const bins = new Float64Array(64);
    const count = 64_000;
    let product = 0;
    let last = uniform(42n, count);
    for (let index = 0; index < count; index++) {
      const value = uniform(42n, index);
      expect(value >= 0 && value < 1).toBe(true);
      bins[Math.floor(value * 64)]! += 1;
      product += (value - 0.5) * (last - 0.5);
      last = value;
    }
    const chiSquare = bins.reduce((sum, seen) => sum + (seen - count / 64) ** 2 / (count / 64), 0);
    expect(chiSquare).toBeLessThan(103.4); // 63 degrees of freedom, 99.9 %
    expect(Math.abs(product / count)).toBeLessThan(0.002); // five standard deviations of 1/12/sqrt(count)
  });
});
