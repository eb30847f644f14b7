import type { Mutant } from './mutants.ts';

/** Bugs in races between computing and loading. */
export const loadMutants: readonly Mutant[] = [
  {
    bug: 'a race loads into blocks that have computed tokens',
    breaks: ['is to be loaded'],
    seed: 1,
    scenario: 'tiers',
    file: 'src/scheduler/race.ts',
    find: 'uncomputed.has(placeName(block)) && ',
    replace: '',
  },
  {
    bug: 'the further loads of a race are never ordered',
    breaks: ['I5', 'I8', 'is not pinned'],
    seed: 1,
    scenario: 'tiers',
    file: 'src/scheduler/race.ts',
    find: '  external!.admitted(state, more, placed);\n',
    replace: '',
  },
];
