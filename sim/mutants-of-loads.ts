import type { Mutant } from './mutants.ts';

/** Bugs in races between computing and loading. */
export const loadMutants: readonly Mutant[] = [
  {
    bug: 'a race loads into blocks that have computed tokens',
    breaks: ['is to be loaded'],
    seed: 77,
    scenario: 'tiers',
    file: 'src/scheduler/race.ts',
    find: 'uncomputed.has(placeName(block)) && ',
    replace: '',
  },
  {
    bug: 'the further loads of a race are never ordered',
    breaks: ['I5', 'I8', 'is not pinned'],
    seed: 375,
    scenario: 'tiers',
    file: 'src/scheduler/race.ts',
    find: '  external!.admitted(state, more, placed);\n',
    replace: '',
  },
  {
    bug: 'a place that was skipped is never measured again',
    breaks: ['I3'],
    seed: 149,
    scenario: 'tiers',
    file: 'src/scheduler/load-choice.ts',
    find: '!loaded.has(place) && (this.#skipped.get(place) ?? 0) + 1 >= this.#probeAfter',
    replace: 'false && loaded.has(place)',
  },
  {
    bug: 'requests that loaded nothing are not counted',
    breaks: ['I3'],
    seed: 149,
    scenario: 'tiers',
    file: 'src/scheduler/load-choice.ts',
    find: 'loaded.has(place) ? 0 : (this.#skipped.get(place) ?? 0) + 1);',
    replace: '0);',
  },
  {
    bug: 'a request does not ask for the invalid blocks of windows and states',
    breaks: ['I3'],
    seed: 8,
    scenario: 'tiers',
    file: 'src/kv/start-loads.ts',
    find: 'groups[group]!.allocatesAll || isComputed((index + 1) * blockSize)',
    replace: 'groups[group]!.allocatesAll',
  },
  {
    bug: 'a plan counts on promised blocks for which the pool has no room',
    breaks: ['I1', 'I3', 'is not valid, but has no owner'],
    seed: 5,
    scenario: 'tiers',
    file: 'src/kv/start-loads.ts',
    find: '  request.needsPlan = true;\n  const places',
    replace: '  const places',
  },
];
