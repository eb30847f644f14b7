import { describe, expect, it } from 'vitest';
import { itNeeds, testsNeed } from './needs.ts';

describe('tests whose need is met', () => {
  let ran = 0;
  testsNeed(true, 'nothing is missing');
  it('run in a suite', () => {
    ran++;
  });
  itNeeds(true, 'nothing is missing', 'run alone', () => {
    ran++;
  });
  it('were both run', () => expect(ran).toBe(2));
});
