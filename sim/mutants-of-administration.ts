import type { Mutant } from './mutants.ts';

/** Bugs in what administrators do: pins, removals, and requests that only load. */
export const administrationMutants: readonly Mutant[] = [
  {
    bug: 'a pin outlives its time',
    breaks: ['outlive'],
    seed: 1,
    file: 'src/base/pinned-sets.ts',
    find: 'if (pin.untilMs > nowMs) continue;',
    replace: 'continue;',
  },
  {
    bug: 'blocks of a pin that has ended are still evicted last',
    breaks: ['is in the wrong list'],
    seed: 31,
    file: 'src/kv/pinned-prefixes.ts',
    find: 'if (hasExpired) this.#pool.sortCached();',
    replace: '',
  },
  {
    bug: 'pinned blocks are evicted first',
    breaks: ['was evicted before other blocks', 'is in the index already'],
    seed: 1,
    file: 'src/kv/block-pool.ts',
    find: 'this.#wanted.first() ?? this.#protected.first();',
    replace: 'this.#protected.first() ?? this.#wanted.first();',
  },
  {
    bug: 'pinned blocks are not available to requests',
    breaks: ['blocks are available', 'I7', 'I8'],
    seed: 1,
    file: 'src/kv/block-pool.ts',
    find: 'return this.#cached.size + this.#wanted.size + this.#protected.size;',
    replace: 'return this.#cached.size + this.#wanted.size;',
  },
  {
    bug: 'a removal frees a block that a transfer reads or fills',
    breaks: ['I5'],
    seed: 79,
    scenario: 'tiers',
    file: 'src/kv/reset.ts',
    find: 'if (pool.isAvailable(block)) {\n      pool.evict(block);\n      removed.push(block);',
    replace:
      'if (pool.references(block) === 0) {\n      pool.evict(block);\n      if (pool.isPinned(block)) pool.unpin(block);\n      removed.push(block);',
  },
  {
    bug: 'a removed block is stored afterwards',
    breaks: ['I4'],
    seed: 9695,
    scenario: 'storm',
    file: 'src/scheduler/external-kv.ts',
    find: 'if (blocks.length > 0 && !this.#newlyValid.isEmpty) this.#newlyValid.drop(new Set(blocks));',
    replace: '',
  },
  {
    bug: 'a request that only loads ends before its loads',
    breaks: ['but it has not loaded'],
    seed: 1,
    scenario: 'offload',
    file: 'src/scheduler/load-only.ts',
    find: ' && !kv.awaitsLoad(state.kv)',
    replace: '',
  },
  {
    bug: 'the blocks of a request that only loads count as valid before they are loaded',
    breaks: ['I1', 'I3', 'I4', 'I5'],
    seed: 1,
    scenario: 'tiers',
    file: 'src/scheduler/load-only.ts',
    find: '  waitingForRemoteKv.length = kept;',
    replace:
      '  for (const { request, kv } of waitingForRemoteKv)\n    if (request.loadOnly === true)\n      for (const { block, blockSize } of kv.awaited) parts.kv.parts.residency.scheduledTokens[block] = blockSize;\n  waitingForRemoteKv.length = kept;',
  },
  {
    bug: 'a request that only loads gets a running slot',
    breaks: ['only loads, but a step computes'],
    seed: 1,
    file: 'src/scheduler/promote.ts',
    find: ' || state.request.loadOnly === true',
    replace: '',
  },
];
