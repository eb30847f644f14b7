import { describe, expect, it } from 'vitest';
import { branchesOf, isFailedAssertion } from './branches.ts';

const code = `const f = (x) => {
  if (x) yes();
  else no();
  if (x === 7) assert(false, 'never');
};`;
const part = (text: string, count: number) => {
  const startOffset = code.indexOf(text);
  return { startOffset, endOffset: startOffset + text.length, count };
};
const whole = (count: number) => ({ startOffset: 0, endOffset: code.length, count });
const run = (...ranges: ReturnType<typeof whole>[]) => ({ path: 'f.ts', code, functions: [{ ranges }] });
const failed = part("assert(false, 'never');", 0);

describe('the branches of a script', () => {
  it('are unreached if no process ran them, with the offset and the text', () => {
    const { count, unreached } = branchesOf([run(whole(3), part('no();', 0))], isFailedAssertion);
    expect(count).toBe(2);
    expect(unreached).toEqual([{ offset: code.indexOf('no();'), text: 'no();' }]);
  });

  it('are reached if one of several processes ran them, even if V8 has no range for them there', () => {
    const isTrue = run(whole(1), part('no();', 0));
    const isFalse = run(whole(1), part('yes();', 0));
    expect(branchesOf([isTrue, isFalse], isFailedAssertion)).toEqual({ count: 3, assertions: 0, unreached: [] });
  });

  it('of a function that no process called are not reached', () => {
    expect(branchesOf([run(whole(0)), run(whole(0))], isFailedAssertion).unreached).toHaveLength(1);
  });

  it('do not include failed assertions', () => {
    expect(branchesOf([run(whole(1), failed)], isFailedAssertion)).toEqual({ count: 1, assertions: 1, unreached: [] });
    expect(isFailedAssertion("{ assert(false, 'never')")).toBe(true);
    expect(isFailedAssertion('default: return assertNever(rule.fault);')).toBe(true);
    expect(isFailedAssertion('assert(isOpen)')).toBe(false);
  });
});
