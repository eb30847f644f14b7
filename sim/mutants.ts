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
    file: 'src/kv/kv-cache.ts',
    find: 'this.pool.release(page);',
    replace: 'if (block !== 1) this.pool.release(page);',
  },
  {
    bug: 'a block is published when its first token is computed',
    file: 'src/kv/kv-cache.ts',
    find: 'validTo[page] !== this.spec.groups[g]!.blockSize || validFrom[page] !== 0',
    replace: 'validFrom[page] !== 0 || block >= request.chains[g]!.count',
  },
  {
    bug: 'sharers do not wait for the owner',
    file: 'src/kv/kv-cache.ts',
    find: 'this.residency.plannedTo[page] !== blockSize) return start;',
    replace: 'this.residency.plannedTo[page] !== blockSize) return Infinity;',
  },
  {
    bug: 'an heir does not learn that it has inherited',
    file: 'src/kv/kv-cache.ts',
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
    find: 'if (pages[block] !== NULL_BLOCK) this.pool.reference(pages[block] as BlockId);',
    replace: 'if (pages[block] !== NULL_BLOCK && block % 2 === 0) this.pool.reference(pages[block] as BlockId);',
  },
];
