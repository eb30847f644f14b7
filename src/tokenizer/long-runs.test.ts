import { expect, it } from 'vitest';
import { cutLongRuns, RUN_LENGTH_MAX } from './long-runs.ts';

const max = RUN_LENGTH_MAX;

it('a long text without long words is not cut', () => {
  expect(cutLongRuns('')).toEqual([]);
  expect(cutLongRuns('word '.repeat(max))).toEqual([]);
  expect(cutLongRuns(`${'a'.repeat(max)} ${'b'.repeat(max)}`)).toEqual([]);
});

it('a run that is too long is cut, of letters and of white space', () => {
  expect(cutLongRuns('a'.repeat(max + 1))).toEqual([max]);
  expect(cutLongRuns(`x ${' '.repeat(2 * max)}`)).toEqual([1 + max, 1 + 2 * max]);
});

it('no cut is within a character', () => {
  expect(cutLongRuns(`a${'🙂'.repeat(max)}`)).toEqual([max + 1]);
});
