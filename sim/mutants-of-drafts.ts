import type { Mutant } from './mutants.ts';

/** Bugs of speculation and of masks: the KV of rejected drafts, masks of other places of the output. */
export const draftMutants: readonly Mutant[] = [
  {
    bug: 'the KV of rejected drafts is valid and published',
    breaks: ['I1', 'I2', 'I3', 'I4'],
    seed: 22,
    scenario: 'local',
    file: 'src/scheduler/apply-result.ts',
    find: 'kv.keepDrafts(state.kv, length, end);',
    replace: 'kv.keepDrafts(state.kv, length, length + drafted);',
  },
  {
    bug: 'the mask after a draft is that of the token before it',
    breaks: ['the mask of request'],
    seed: 4,
    scenario: 'local',
    file: 'src/scheduler/request-state.ts',
    find: 'allowed.push(constraint.allowedTokens(state, avoidEnd));',
    replace: 'allowed.push(constraint.allowedTokens(this.#constraintState, avoidEnd));',
  },
  {
    bug: 'a preempted request begins its grammar again',
    breaks: ['the mask of request'],
    seed: 11,
    scenario: 'local',
    file: 'src/scheduler/request-state.ts',
    find: 'this.waitingCost = undefined;',
    replace: 'this.#constraintState = this.request.constraint?.start;',
  },
  {
    bug: 'drafts continue outputs of requests with another cache salt',
    breaks: ['drafts from a text that it may not know'],
    seed: 235,
    scenario: 'local',
    file: 'src/scheduler/speculation/response-cache.ts',
    find: 'let root = roots.get(salt);',
    replace: 'let root = roots.get(salt) ?? roots.get(undefined);',
  },
  {
    bug: 'drafts continue the next output in the memory of the cache',
    breaks: ['drafts from a text that it may not know'],
    seed: 180,
    scenario: 'local',
    file: 'src/scheduler/speculation/suffix-tree.ts',
    find: 'if (token === END) break;',
    replace: 'if (token === END) continue;',
  },
];
