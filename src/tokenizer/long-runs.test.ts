import { expect, it } from 'vitest';
import { cutLongRuns, SLOW_SPACES_MIN } from './long-runs.ts';

/** Lower than in the product. */
const max = 100;
const half = max / 2;
const runs = (text: string) => cutLongRuns(text, 'runs', max);

it('a long text without long words is not cut', () => {
  expect(runs('')).toEqual([]);
  expect(runs('word '.repeat(max))).toEqual([]);
  expect(runs('word\n'.repeat(max))).toEqual([]);
  expect(runs(`${'a'.repeat(max)} ${'b'.repeat(max)}`)).toEqual([]);
  expect(runs(`${'a'.repeat(half)}${' '.repeat(max)}`)).toEqual([]);
});

it('a run that is too long is cut, of letters and of white space', () => {
  expect(runs('a'.repeat(max + 1))).toEqual([max]);
  expect(runs(`x ${' '.repeat(2 * max)}`)).toEqual([1 + max, 1 + 2 * max]);
  expect(runs(' \u00a0'.repeat(max))).toEqual([max]);
});

it('a run and the line ends after it are one match', () => {
  expect(runs(`${'!'.repeat(max - 1)}\n`)).toEqual([]);
  expect(runs(`${'!'.repeat(half)}${'\n'.repeat(half + 1)}`)).toEqual([max]);
  expect(runs(`!${'\n/'.repeat(half)}`)).toEqual([max]);
  expect(runs(`!\n${'/'.repeat(half)}${'!'.repeat(half)}`)).toEqual([]);
  expect(runs(`!\n${'/'.repeat(half)}${'!'.repeat(half)}!`)).toEqual([2 + max]);
});

it('no cut is within a character', () => {
  expect(runs(`a${'🙂'.repeat(max)}`)).toEqual([max + 1]);
});

it('many words with single spaces are cut between two words if they are one match', () => {
  const words = 'word '.repeat(max);
  const cuts = cutLongRuns(words, 'words', max);
  expect(cuts[0]).toBe(max - 1);
  expect(cuts.every((cut, i) => words[cut] === ' ' && cut - (cuts[i - 1] ?? 0) <= max)).toBe(true);
  expect(cutLongRuns('a few words. '.repeat(max), 'words', max)).toEqual([]);
  expect(cutLongRuns('a'.repeat(max + 1), 'words', max)).toEqual([max]);
});

it('white space whose time would be quadratic is cut from the next character', () => {
  const spaces = ' '.repeat(SLOW_SPACES_MIN);
  expect(cutLongRuns(`${spaces}日${spaces}7`, 'spaces')).toEqual([SLOW_SPACES_MIN, 2 * SLOW_SPACES_MIN + 1]);
  expect(cutLongRuns(`${spaces}a${spaces}.${spaces}`, 'spaces')).toEqual([]);
  expect(cutLongRuns(`${spaces.slice(1)}日`, 'spaces')).toEqual([]);
});

it('nothing is cut for a pre-tokenizer that does not recurse', () => {
  expect(cutLongRuns('a'.repeat(3 * max), 'never', max)).toEqual([]);
});
