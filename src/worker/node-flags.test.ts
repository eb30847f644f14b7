import { describe, expect, it } from 'vitest';
import { inheritedFlags } from './node-flags.ts';

describe('the flags of a worker', () => {
  it('are the flags of its parent, except those for the parent only', () => {
    const kept = ['--max-old-space-size=4096', '--import', './hooks.mjs', '-r', './first.cjs'];
    expect(inheritedFlags(kept)).toEqual(kept);
    const own = [
      '--input-type=module',
      '-e',
      '1 + 1',
      '--inspect=9229',
      '--inspect-brk',
      '--watch',
      '--input-type',
      'x',
    ];
    expect(inheritedFlags([...own, ...kept, '--eval', '2'])).toEqual(kept);
    expect(inheritedFlags([])).toEqual([]);
  });
});
