import { describe, expect, it } from 'vitest';
import { itNeeds, testsNeed } from './needs.ts';

describe('tests whose needs are met', () => {
  let ran = 0;
  testsNeed(true, 'nothing is missing');
  it('runs a test of a suite', () => {
    ran++;
  });
  itNeeds(true, 'nothing is missing', 'runs a single test', () => {
    ran++;
  });
  it('has run both tests', () => expect(ran).toBe(2));
});
