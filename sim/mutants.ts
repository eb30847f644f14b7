/**
 * Bugs that we plant to see that the simulator finds them: each replaces one piece of a source file. When a piece is
 * not found any more, the code has moved on and the mutant must move with it.
 */
export interface Mutant {
  readonly bug: string;
  readonly file: string;
  readonly find: string;
  readonly replace: string;
}

export const mutants: readonly Mutant[] = [
  {
    bug: 'a sharer’s reference is not counted',
    file: 'src/kv/block-pool.ts',
    find: 'this.#references[page]!++;',
    replace: '',
  },
  {
    bug: 'a release is forgotten',
    file: 'src/kv/coverage.ts',
    find: 'parts.pool.release(page);',
    replace: 'if (block !== 1) parts.pool.release(page);',
  },
  {
    bug: 'a block is published when its first token is computed',
    file: 'src/kv/kv-cache.ts',
    find: 'if (residency.validFrom[page] !== 0 || residency.validTo[page] !== spec.groups[g]!.blockSize) return;',
    replace: 'if (residency.validFrom[page] !== 0 || block >= request.chains[g]!.count) return;',
  },
  {
    bug: 'sharers do not wait for the owner',
    file: 'src/kv/kv-cache.ts',
    find: 'residency.plannedTo[page] !== blockSize) return start;',
    replace: 'residency.plannedTo[page] !== blockSize) return Infinity;',
  },
  {
    bug: 'an heir does not learn that it has inherited',
    file: 'src/kv/ownership.ts',
    find: 'heir.needsPlan = true;',
    replace: '',
  },
  {
    bug: 'ownership ends with the owner',
    file: 'src/kv/residency.ts',
    find: 'this.#owners[page] = heir + 1;',
    replace: '',
  },
  {
    bug: 'pages of an aborted request are freed while a step writes them',
    file: 'src/scheduler/scheduler.ts',
    find: 'if (!state.inFlight) this.#kv.close(state.kv);',
    replace: 'this.#kv.close(state.kv);',
  },
  {
    bug: 'an evicted page can still be found',
    file: 'src/kv/block-pool.ts',
    find: 'if (this.#index.has(page)) this.#index.remove(page);',
    replace: '',
  },
  {
    bug: 'a block’s digest does not contain its past',
    file: 'src/kv/block-hash.ts',
    find: 'this.#append(digest);\n      this.#setParent(digest);',
    replace: 'this.#append(digest);',
  },
  {
    bug: 'the planner overlooks the last token of a hole',
    file: 'src/kv/planner.ts',
    find: 'offset >= to[block]!) return block * blockSize + offset;',
    replace: 'offset > to[block]!) return block * blockSize + offset;',
  },
  {
    bug: 'what was found can be evicted while the rest is allocated',
    file: 'src/kv/kv-cache.ts',
    find: 'if (pages[block] !== NULL_BLOCK) pool.reference(pages[block] as BlockId);',
    replace: 'if (pages[block] !== NULL_BLOCK && block % 2 === 0) pool.reference(pages[block] as BlockId);',
  },
  {
    bug: 'the planner’s window is one token too short',
    file: 'src/kv/planner.ts',
    find: 'candidate > low - group.window',
    replace: 'candidate > low - group.window + 1',
  },
  {
    bug: 'a window lets go of a block one token too early',
    file: 'src/kv/group-window.ts',
    find: '(position - this.#window + 1) / this.#blockSize',
    replace: '(position - this.#window + 2) / this.#blockSize',
  },
  {
    bug: 'a state is let go before it is read',
    file: 'src/kv/group-state.ts',
    find: 'Math.floor((position - 1) / this.#blockSize)',
    replace: 'Math.floor(position / this.#blockSize)',
  },
];
