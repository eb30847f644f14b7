import type { Mutant } from './mutants.ts';

/** Bugs of requests that ask for results of their prompts: logprobs, embeddings. */
export const promptMutants: readonly Mutant[] = [
  {
    bug: 'results of prompt positions that read invalid KV are delivered',
    breaks: ['I2'],
    seed: 21,
    file: 'src/scheduler/prompt-output.ts',
    find: 'const count = Math.min(end, below) - start;',
    replace: 'const count = end - start;',
  },
  {
    bug: 'prompt positions are computed again although their results were delivered',
    breaks: ['I3'],
    seed: 1,
    file: 'src/scheduler/apply-result.ts',
    find: 'kv.computeFrom(request, output.computeFrom);',
    replace: '',
  },
  {
    bug: 'prompt positions with valid KV are not computed, although the request asks for their results',
    breaks: ['was asked for, and position'],
    seed: 3,
    file: 'src/scheduler/scheduler.ts',
    find: 'if (state.promptOutput !== undefined) this.#kv.computeFrom(kv, state.promptOutput.computeFrom);',
    replace: '',
  },
];
