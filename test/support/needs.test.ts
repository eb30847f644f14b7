import { beforeAll, describe, expect, it } from 'vitest';
import { needs } from './needs.ts';

const isMet = needs(true, 'nothing is missing');

describe('tests whose needs are met', isMet, () => {
  let ran = 0;
  beforeAll(() => {
    ran++;
  });
  it('runs the hooks of their suite', () => expect(ran).toBe(1));
  it('runs a single test', isMet, () => {
    ran++;
  });
  it('has run both', () => expect(ran).toBe(2));
});

// `.ci/run` shows with a bare machine that hooks do not run either.
it('a test whose need is not met is skipped before it starts, with the reason', () => {
  expect(JSON.stringify(needs(false, 'no zig'))).toBe('{"skip":true,"meta":{"skipReason":"no zig"}}');
});
