import { expect, it } from 'vitest';
import { expOf, logOf } from './exp-and-log.ts';

const count = 100_000;
const differences = (ours: (x: number) => number, theirs: (x: number) => number, xs: readonly number[]): number[] =>
  xs.map((x) => Math.abs(ours(x) - theirs(x)) / Math.max(Math.abs(theirs(x)), Number.MIN_VALUE));

it("expOf is close to V8's", () => {
  const xs = Array.from({ length: count }, (_, i) => -60 + (i * 61) / count);
  expect(Math.max(...differences(expOf, Math.exp, xs.slice(0, 50_000)))).toBeLessThan(5e-16);
  expect(Math.max(...differences(expOf, Math.exp, xs.slice(50_000)))).toBeLessThan(5e-16);
  expect(expOf(0)).toBe(1);
});

it("logOf is close to V8's", () => {
  const xs = Array.from({ length: 50_000 }, (_, i) => 1e-5 * 1.001 ** (i / 2));
  expect(Math.max(...differences(logOf, Math.log, xs))).toBeLessThan(5e-16);
  expect(logOf(1)).toBe(0);
});
