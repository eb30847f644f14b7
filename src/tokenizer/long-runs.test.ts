import { expect, it } from 'vitest';
import { cutLongRuns, RUN_LENGTH_MAX } from './long-runs.ts';

const max = RUN_LENGTH_MAX;

it('leaves text alone, however long, when its words are not', () => {
  expect(cutLongRuns('')).toEqual([]);
  expect(cutLongRuns('word '.repeat(max))).toEqual([]);
  expect(cutLongRuns(`${'a'.repeat(max)} ${'b'.repeat(max)}`)).toEqual([]);
});

it('cuts runs of anything that has no end', () => {
  expect(cutLongRuns('a'.repeat(max + 1))).toEqual([max]);
  expect(cutLongRuns(`x ${' '.repeat(2 * max)}`)).toEqual([1 + max, 1 + 2 * max]);
});

it('never cuts a character in two', () => {
  expect(cutLongRuns(`a${'🙂'.repeat(max)}`)).toEqual([max + 1]);
});
