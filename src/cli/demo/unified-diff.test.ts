import { expect, test } from 'vitest';
import { unifiedDiff } from './unified-diff.ts';

const lines = (...numbers: number[]): string => numbers.map((n) => `line ${n}`).join('\n');
const diff = (a: string, b: string): string[] =>
  unifiedDiff({ name: 'a', text: a }, { name: 'b', text: b }).trimEnd().split('\n');

test('a changed line has three lines of context, as with `diff -u`', () => {
  const before = lines(1, 2, 3, 4, 5, 6, 7, 8, 9);
  expect(diff(before, before.replace('line 5', 'other'))).toEqual([
    '--- a',
    '+++ b',
    '@@ -2,7 +2,7 @@',
    ' line 2',
    ' line 3',
    ' line 4',
    '-line 5',
    '+other',
    ' line 6',
    ' line 7',
    ' line 8',
  ]);
});

test('differences far apart are separate hunks, with the lines of both sides counted', () => {
  const before = lines(...Array.from({ length: 30 }, (_, i) => i));
  const after = `new\n${before}`.replace('line 25\n', '');
  const hunks = diff(before, after).filter((line) => line.startsWith('@@'));
  expect(hunks).toEqual(['@@ -1,3 +1,4 @@', '@@ -23,7 +24,6 @@']);
});

test('a long line is split between words, so that one changed word is one changed line', () => {
  const words = Array.from({ length: 60 }, (_, i) => `word${i}`).join(' ');
  const changed = diff(words, words.replace('word40', 'sword')).filter((line) => /^[-+] ?\w/.test(line));
  expect(changed).toHaveLength(2);
  expect(changed.join()).toContain('sword');
});

test('equal texts have no hunks', () => {
  expect(diff(lines(1, 2), lines(1, 2))).toEqual(['--- a', '+++ b']);
});
