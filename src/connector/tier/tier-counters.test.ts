import { expect, test } from 'vitest';
import { CountDifferences, sumOfCounts } from './tier-counters.ts';

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
