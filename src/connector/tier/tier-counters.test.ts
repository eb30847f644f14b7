import { expect, test } from 'vitest';
import { addPrefixed, CountDifferences, sumOfCounts } from './tier-counters.ts';

test('the differences of all reports add up to the totals and the current levels', () => {
  const differences = new CountDifferences();
  const reports = [
    { 'tier.stored': 2, 'now.blocks': 2, 'now.stuckThreads': 0 },
    { 'tier.stored': 5, 'now.blocks': 3, 'now.stuckThreads': 4 },
    { 'tier.stored': 5, 'now.blocks': 1, 'now.stuckThreads': 0 },
  ].map((counts) => differences.take(counts));
  expect(reports[0]).toEqual({ 'tier.stored': 2, 'now.blocks': 2 });
  expect(sumOfCounts(reports)).toEqual({ 'tier.stored': 5, 'now.blocks': 1, 'now.stuckThreads': 0 });
});

test('a level that a report does not have becomes 0, and a total stays', () => {
  const differences = new CountDifferences();
  expect(differences.take({ 'tier.evicted': 3, 'now.otherBlocks': 7 })).toEqual({
    'tier.evicted': 3,
    'now.otherBlocks': 7,
  });
  expect(differences.take({})).toEqual({ 'now.otherBlocks': -7 });
});

test('a count that disappears and returns counts again from 0', () => {
  const differences = new CountDifferences();
  const reports = [{ 'now.blocks': 4, 'tier.stored': 2 }, {}, { 'now.blocks': 1, 'tier.stored': 1 }].map((counts) =>
    differences.take(counts),
  );
  expect(reports).toEqual([
    { 'now.blocks': 4, 'tier.stored': 2 },
    { 'now.blocks': -4 },
    { 'now.blocks': 1, 'tier.stored': 1 },
  ]);
});

test('names get their prefix, and equal names with different prefixes are different counts', () => {
  const counts = {};
  for (const round of [1, 2]) {
    addPrefixed(counts, 'disk.', { loaded: round, evicted: 2 * round });
    addPrefixed(counts, 'redis.', { loaded: 10 * round });
  }
  expect(counts).toEqual({ 'disk.loaded': 2, 'disk.evicted': 4, 'redis.loaded': 20 });
});
