import { expect, test } from 'vitest';
import { CountDifferences, sumOfCounts } from './tier-counters.ts';

test('differences of many reports add up to the totals and levels of now', () => {
  const told = new CountDifferences();
  const reports = [
    { 'tier.stored': 2, 'now.blocks': 2, 'now.stuckThreads': 0 },
    { 'tier.stored': 5, 'now.blocks': 3, 'now.stuckThreads': 4 },
    { 'tier.stored': 5, 'now.blocks': 1, 'now.stuckThreads': 0 },
  ].map((counts) => told.take(counts));
  expect(reports[0]).toEqual({ 'tier.stored': 2, 'now.blocks': 2 });
  expect(sumOfCounts(reports)).toEqual({ 'tier.stored': 5, 'now.blocks': 1, 'now.stuckThreads': 0 });
});

test('a level that is absent from a report is 0, and a total stays', () => {
  const told = new CountDifferences();
  expect(told.take({ 'tier.evicted': 3, 'now.otherBlocks': 7 })).toEqual({ 'tier.evicted': 3, 'now.otherBlocks': 7 });
  expect(told.take({})).toEqual({ 'now.otherBlocks': -7 });
});
