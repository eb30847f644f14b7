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
  {
    bug: 'a place that was skipped is never measured again',
    breaks: ['I3'],
    seed: 1,
    scenario: 'tiers',
    file: 'src/scheduler/load-choice.ts',
    find: '!loaded.has(place) && (this.#skipped.get(place) ?? 0) + 1 >= this.#probeAfter',
    replace: 'false && loaded.has(place)',
  },
  {
    bug: 'requests that loaded nothing are not counted',
    breaks: ['I3'],
    seed: 1,
    scenario: 'tiers',
    file: 'src/scheduler/load-choice.ts',
    find: 'loaded.has(place) ? 0 : (this.#skipped.get(place) ?? 0) + 1);',
    replace: '0);',
  },
];
