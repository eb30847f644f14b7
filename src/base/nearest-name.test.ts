import { expect, it } from 'vitest';
import { editDistance, nearestName } from './nearest-name.ts';

it.each([
  ['', '', 0],
  ['abc', 'abc', 0],
  ['abc', '', 3],
  ['kitten', 'sitting', 3],
  ['temprature', 'temperature', 1],
])('%s is %s after %i edits', (a, b, distance) => {
  expect(editDistance(a, b)).toBe(distance);
  expect(editDistance(b, a)).toBe(distance);
});

it('finds the nearest name, and undefined if no name is near', () => {
  const known = ['temperature', 'top_p', 'n'];
  expect(nearestName('Temprature', known)).toBe('temperature');
  expect(nearestName('topP', known)).toBe('top_p');
  expect(nearestName('frequency', known)).toBeUndefined();
  expect(nearestName('x'.repeat(1_000_000), known)).toBeUndefined();
  expect(nearestName('x', [])).toBeUndefined();
});
