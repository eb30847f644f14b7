import type { Mutant } from './mutants.ts';

/** Bugs of kept blocks: running states, and partial blocks of windows, that the plan does not need but may need after a failure. */
export const keptMutants: readonly Mutant[] = [
  {
    bug: 'a running state that the plan does not need is released before more tokens are computed',
    breaks: ['I3'],
    seed: 11,
    scenario: 'spans',
    file: 'src/kv/release.ts',
    find: 'request.kept.push(place);',
    replace: 'releaseBlock(parts, request, place);',
  },
  {
    bug: 'a running state is used after its block was released and overwritten',
    breaks: ['I1', 'has no reference to release'],
    checks: false,
    seed: 1858,
    scenario: 'tiers',
    file: 'src/kv/release.ts',
    find: 'releaseBlock(parts, request, request.kept.shift()!);',
    replace: 'releaseBlock(parts, request, request.kept[0]!);',
  },
  {
    bug: 'an invalid block stays among the kept blocks',
    breaks: ['is not valid, but has no owner'],
    seed: 88,
    file: 'src/kv/invalidate.ts',
    find: 'releaseInvalid(parts, request, request.kept, invalid);',
    replace: '',
  },
];
