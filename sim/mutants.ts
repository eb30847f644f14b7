/**
 * Bugs that we plant to see that the simulator finds them: each replaces one piece of a source file. When a piece is
 * not found any more, the code has moved on and the mutant must move with it.
 */
export interface Mutant {
  readonly bug: string;
  /** A world that is known to show it, so that the test need not search; when it no longer does, the next ones are tried. */
  readonly seed: number;
  readonly file: string;
  readonly find: string;
  readonly replace: string;
}

export const mutants: readonly Mutant[] = [
  {
    bug: 'a sharer’s reference is not counted',
    seed: 1,
    file: 'src/kv/block-pool.ts',
    find: 'this.#references[page]!++;',
    replace: '',
  },
  {
    bug: 'a release is forgotten',
    seed: 1,
    file: 'src/kv/coverage.ts',
    find: 'parts.pool.release(page);',
    replace: 'if (block !== 1) parts.pool.release(page);',
  },
  {
    bug: 'a block is published when its first token is computed',
    seed: 1,
    file: 'src/kv/kv-cache.ts',
    find: 'if (residency.validTo[page] !== blockSize) return;',
    replace: 'if (block >= request.chains[g]!.count) return;',
  },
  {
    bug: 'sharers do not wait for the owner',
    seed: 7,
    file: 'src/kv/plan-request.ts',
    find: 'residency.plannedTo[page] !== blockSize) return start;',
    replace: 'residency.plannedTo[page] !== blockSize) return Infinity;',
  },
  {
    bug: 'an heir does not learn that it has inherited',
    seed: 10,
    file: 'src/kv/ownership.ts',
    find: 'heir.needsPlan = true;',
    replace: '',
  },
  {
    bug: 'ownership ends with the owner',
    seed: 10,
    file: 'src/kv/residency.ts',
    find: 'this.#owners[page] = heir + 1;',
    replace: '',
  },
  {
    bug: 'pages of an aborted request are freed while a step writes them',
    seed: 5,
    file: 'src/scheduler/scheduler.ts',
    find: 'if (!state.inFlight) this.#kv.close(state.kv);',
    replace: 'this.#kv.close(state.kv);',
  },
  {
    bug: 'an evicted page can still be found',
    seed: 1,
    file: 'src/kv/block-pool.ts',
    find: 'if (this.#index.has(page)) this.#index.remove(page);',
    replace: '',
  },
  {
    bug: 'a block’s digest does not contain its past',
    seed: 1,
    file: 'src/kv/block-hash.ts',
    find: 'this.#append(digest);\n      this.#setParent(digest);',
    replace: 'this.#append(digest);',
  },
  {
    bug: 'the planner overlooks the last token of a hole',
    seed: 1,
    file: 'src/kv/planner.ts',
    find: 'offset >= validTo[block]!) return block * blockSize + offset;',
    replace: 'offset > validTo[block]!) return block * blockSize + offset;',
  },
  {
    bug: 'what was found can be evicted while the rest is allocated',
    seed: 1,
    file: 'src/kv/kv-cache.ts',
    find: 'if (pages[block] !== NULL_BLOCK) pool.reference(pages[block] as BlockId);',
    replace: 'if (pages[block] !== NULL_BLOCK && block % 2 === 0) pool.reference(pages[block] as BlockId);',
  },
  {
    bug: 'the planner’s window is one token too short',
    seed: 40,
    file: 'src/kv/planner.ts',
    find: 'candidate > low - group.window',
    replace: 'candidate > low - group.window + 1',
  },
  {
    bug: 'a window lets go of a block one token too early',
    seed: 1,
    file: 'src/kv/group-window.ts',
    find: '(position - this.#window + 1) / this.#blockSize',
    replace: '(position - this.#window + 2) / this.#blockSize',
  },
  {
    bug: 'a state is let go before it is read',
    seed: 2,
    file: 'src/kv/group-state.ts',
    find: 'Math.floor((position - 1) / this.#blockSize)',
    replace: 'Math.floor(position / this.#blockSize)',
  },
  {
    bug: 'rows that rode on spoiled rows count',
    seed: 1080,
    file: 'src/kv/invalidate.ts',
    find: 'if (first !== Infinity) spoilRows(parts, request, spans, first, spoiled);',
    replace: '',
  },
  {
    bug: 'a sample that depended on an invalid page counts',
    seed: 7,
    file: 'src/scheduler/apply-result.ts',
    find: 'counts.push(below === Infinity);',
    replace: 'counts.push(true);',
  },
  {
    bug: 'sharers of an invalid page do not wait until its new owner has filled it (vLLM issue 49250)',
    seed: 7,
    file: 'src/kv/invalidate.ts',
    find: 'for (const user of users) user.needsPlan = true;',
    replace: 'for (const user of users) user.needsPlan = [...users][0] === user;',
  },
  {
    bug: 'an invalid page can still be found',
    seed: 1,
    file: 'src/kv/invalidate.ts',
    find: 'if (published.has(page)) pool.unpublish(page);',
    replace: '',
  },
  {
    bug: 'a running state that went too far is taken for valid',
    seed: 2,
    file: 'src/kv/residency.ts',
    find: 'if (below < this.plannedTo[page]!) this.empty(page);\n    else ',
    replace: '',
  },
  {
    bug: 'everything from the first lost block on is computed again',
    seed: 7,
    file: 'src/kv/plan-request.ts',
    find: 'request.nextSpan = 0;',
    replace:
      'request.nextSpan = 0; const first = request.spans.start(0); request.spans.clear(); request.spans.push(first, request.tokens.length);',
  },
  {
    bug: 'a running state overwrites a checkpoint that others use',
    seed: 112,
    file: 'src/kv/group-state.ts',
    find: 'rowsNeedOwnPage = true',
    replace: 'rowsNeedOwnPage = false',
  },
  {
    bug: 'a checkpoint that rows pass by does not come back',
    seed: 9,
    file: 'src/kv/coverage.ts',
    find: 'table.set(block, page);\n    request.firstHeld[group]',
    replace: 'table.set(block, NULL_BLOCK);\n    request.firstHeld[group]',
  },
  {
    bug: 'pages that were lent for a repair are never let go',
    seed: 2,
    file: 'src/kv/coverage.ts',
    find: 'request.firstHeld[g] = Math.min(request.firstHeld[g]!, block);\n  const { spans',
    replace: 'const { spans',
  },
  {
    bug: 'sharers keep a window’s page that its owner has left',
    seed: 253,
    file: 'src/kv/ownership.ts',
    find: 'dropFromOthers(parts, owner, g, block, page);\n  }',
    replace: '}',
  },
];
