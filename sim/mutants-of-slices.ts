import type { Mutant } from './mutants.ts';

/** Bugs of layered prefill (ADR 27): chunks count too early, or continue from hidden states of other KV. */
export const sliceMutants: readonly Mutant[] = [
  {
    bug: 'the KV of a chunk is valid before its last layers are computed',
    breaks: ['I1', 'I3', 'I4'],
    seed: 11,
    scenario: 'local',
    file: 'src/scheduler/apply-result.ts',
    find: 'const isPartly = hasMoreLayers(sequence, kv.parts.spec);',
    replace: 'const isPartly = false && hasMoreLayers(sequence, kv.parts.spec);',
  },
  {
    bug: 'a chunk by layers goes on after a block that it has read was invalid',
    breaks: ['I1', 'I2'],
    seed: 1064,
    scenario: 'local',
    file: 'src/scheduler/layered-prefill.ts',
    find: 'if (tables.some((table) => table.includes(block))) {',
    replace: 'if (tables.length === 0) {',
  },
];
