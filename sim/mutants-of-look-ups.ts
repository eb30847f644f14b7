import type { Mutant } from './mutants.ts';

/** Bugs in look-ups that begin when requests arrive. */
export const lookUpMutants: readonly Mutant[] = [
  {
    bug: 'a look-up that has ended waits for the slowest of the others',
    breaks: ['I8'],
    seed: 12,
    scenario: 'tiers',
    file: 'src/connector/places/gathered-wakes.ts',
    find: 'this.#timer ??= this.#timers.after(waitMs, () => this.#wakeNow());',
    replace: 'void waitMs;',
  },
  {
    bug: 'a request arrives at the connector again when it is admitted',
    breaks: ['after the connector has heard of it'],
    seed: 1,
    scenario: 'tiers',
    file: 'src/scheduler/external-kv.ts',
    find: '    state.queryDeadlineMs = undefined;\n    const request',
    replace: '    state.queryDeadlineMs = undefined;\n    this.arrived(state);\n    const request',
  },
];
