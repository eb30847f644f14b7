import { expect, test } from 'vitest';
import { Prng } from './prng.ts';

const draws = (prng: Prng, count: number) => Array.from({ length: count }, () => prng.uint32());

test('equal seeds give equal sequences, and different seeds different sequences', () => {
  expect(draws(new Prng(42), 8)).toEqual(draws(new Prng(42), 8));
  expect(draws(new Prng(42), 8)).not.toEqual(draws(new Prng(43), 8));
  expect(draws(new Prng(2 ** 33), 4)).not.toEqual(draws(new Prng(0), 4));
});

test('a fork has another sequence than its parent', () => {
  const parent = new Prng(1);
  const fork = parent.fork();
  expect(draws(fork, 4)).not.toEqual(draws(parent, 4));
});

test('draws are uniform in the range, including both ends', () => {
  const prng = new Prng(5);
  const counts = [0, 0, 0, 0];
  for (let i = 0; i < 40_000; i++) counts[prng.between(0, 3)]!++;
  for (const count of counts) expect(Math.abs(count - 10_000)).toBeLessThan(500);
  expect(prng.pick(['only'])).toBe('only');
  expect(prng.chance(0)).toBe(false);
  expect(prng.chance(1)).toBe(true);
});
