/**
 * Bugs that we plant to see that the simulator finds them: each replaces one piece of a source file. When a piece is
 * not found any more, the code has moved on and the mutant must move with it.
 */
import type { TierFaults } from './faults.ts';
import type { Scenario } from './world.ts';

export interface Mutant {
  readonly bug: string;
  /** A world that is known to show it, so that the test need not search; when it no longer does, the next ones are tried. */
  readonly seed: number;
  /** Default `mixed`. */
  readonly scenario?: Scenario;
  /** Where it takes much bad luck of one sort to show: these faults instead of random ones. */
  readonly faults?: Partial<TierFaults>;
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
    seed: 15,
    file: 'src/kv/plan-request.ts',
    find: 'residency.plannedTo[page] !== blockSize) return start;',
    replace: 'residency.plannedTo[page] !== blockSize) return Infinity;',
  },
  {
    bug: 'an heir does not learn that it has inherited',
    seed: 82,
    file: 'src/kv/ownership.ts',
    find: 'heir.needsPlan = true;',
    replace: '',
  },
  {
    bug: 'ownership ends with the owner',
    seed: 11,
    file: 'src/kv/residency.ts',
    find: 'this.#owners[page] = heir + 1;',
    replace: '',
  },
  {
    bug: 'pages of an aborted request are freed while a step writes them',
    seed: 5,
    file: 'src/scheduler/scheduler.ts',
    find: 'if (!state.inFlight) this.#close(state);',
    replace: 'this.#close(state);',
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
    seed: 8,
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
    seed: 75,
    file: 'src/kv/planner.ts',
    find: 'candidate > low - group.window',
    replace: 'candidate > low - group.window + 1',
  },
  {
    bug: 'a window lets go of a block one token too early',
    seed: 14,
    file: 'src/kv/group-window.ts',
    find: '(position - this.#window + 1) / this.#blockSize',
    replace: '(position - this.#window + 2) / this.#blockSize',
  },
  {
    bug: 'a state is let go before it is read',
    seed: 5,
    file: 'src/kv/group-state.ts',
    find: 'Math.floor((position - 1) / this.#blockSize)',
    replace: 'Math.floor(position / this.#blockSize)',
  },
  {
    bug: 'rows that rode on spoiled rows count',
    seed: 1168,
    file: 'src/kv/invalidate.ts',
    find: 'if (first !== Infinity) spoilRows(parts, request, spans, first, spoiled);',
    replace: '',
  },
  {
    bug: 'a sample that depended on an invalid page counts',
    seed: 8,
    file: 'src/scheduler/apply-result.ts',
    find: 'counts.push(below === Infinity);',
    replace: 'counts.push(true);',
  },
  {
    bug: 'sharers of an invalid page do not wait until its new owner has filled it (vLLM issue 49250)',
    seed: 8,
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
    seed: 8,
    file: 'src/kv/residency.ts',
    find: 'if (below < this.plannedTo[page]!) this.empty(page);\n    else ',
    replace: '',
  },
  {
    bug: 'everything from the first lost block on is computed again',
    seed: 10,
    file: 'src/kv/plan-request.ts',
    find: 'request.nextSpan = 0;',
    replace:
      'request.nextSpan = 0; const first = request.spans.start(0); request.spans.clear(); request.spans.push(first, request.tokens.length);',
  },
  {
    bug: 'a running state overwrites a checkpoint that others use',
    seed: 116,
    file: 'src/kv/group-state.ts',
    find: 'rowsNeedOwnPage = true',
    replace: 'rowsNeedOwnPage = false',
  },
  {
    bug: 'a checkpoint that rows pass by does not come back',
    seed: 102,
    file: 'src/kv/coverage.ts',
    find: 'table.set(block, page);\n    request.firstHeld[group]',
    replace: 'table.set(block, NULL_BLOCK);\n    request.firstHeld[group]',
  },
  {
    bug: 'pages that were lent for a repair are never let go',
    seed: 8,
    file: 'src/kv/coverage.ts',
    find: 'request.firstHeld[g] = Math.min(request.firstHeld[g]!, block);\n  const { spans',
    replace: 'const { spans',
  },
  {
    bug: 'sharers keep a window’s page that its owner has left',
    seed: 291,
    file: 'src/kv/ownership.ts',
    find: 'dropFromOthers(parts, owner, g, block, page);\n  }',
    replace: '}',
  },
  {
    bug: 'a page is not held while a load writes it',
    seed: 4,
    file: 'src/connector/transfer-ledger.ts',
    find: '      this.#holds.hold(block.page);',
    replace: '',
  },
  {
    bug: 'a page that I/O may still write is computed into',
    seed: 28,
    file: 'src/kv/loading.ts',
    find: 'if (isBusy) leaveToIo(parts, page, holders);',
    replace: '',
  },
  {
    bug: 'a promise that was broken is believed again',
    seed: 5,
    scenario: 'storm',
    faults: { corrupt: 0.5, lies: 0.5 },
    file: 'src/scheduler/external-kv.ts',
    find: 'if (this.ledger.isPromisable(state.request.id, found))\n',
    replace: 'if (!this.ledger.hasOrders)\n',
  },
  {
    bug: 'a worker that says nothing is waited for without a deadline',
    seed: 29,
    file: 'src/scheduler/external-kv.ts',
    find: '...change.decided, ...this.ledger.takeLost()',
    replace: '...change.decided',
  },
  {
    bug: 'a load that is decided is still waited for',
    seed: 4,
    file: 'src/scheduler/external-kv.ts',
    find: 'this.#loads.delete(decided.load.transfer);',
    replace: '',
  },
  {
    bug: 'a load ends with the request that ordered it, though others wait for it',
    seed: 235,
    file: 'src/scheduler/external-kv.ts',
    find: 'if (open.placed.some(({ page }) => this.#kv.parts.residency.isLoading(page))) {',
    replace: 'if (open.state !== state) {',
  },
  {
    bug: 'rows that counted on a load count before it is there',
    seed: 28,
    file: 'src/scheduler/scheduler.ts',
    find: 'const missing = this.#external.lateIn(plan.connectorMetadata);',
    replace: 'const missing: BlockId[] = [];',
  },
  {
    bug: 'rows that counted on a load count when it has failed',
    seed: 12,
    file: 'src/scheduler/scheduler.ts',
    find: 'for (const { decided } of outcomes) for (const { page } of decided.failed) missing.push(page);',
    replace: '',
  },
  {
    bug: 'a page is read while it is loaded',
    seed: 8,
    file: 'src/kv/kv-cache.ts',
    find: 'this.parts.residency.startLoading(table.at(block), 0);',
    replace: 'this.parts.residency.startLoading(table.at(block), this.parts.spec.groups[g]!.blockSize);',
  },
  {
    bug: 'rows are written into a page that a load fills',
    seed: 8,
    file: 'src/kv/residency.ts',
    find: 'return this.#owners[page] === slot + 1 && this.#loading[page] === 0;',
    replace: 'return this.#owners[page] === slot + 1;',
  },
  {
    bug: 'a load of a page whose content was lost meanwhile is trusted',
    seed: 406,
    scenario: 'crash',
    faults: { silent: 0.5, slow: 0.5 },
    file: 'src/scheduler/scheduler.ts',
    find: 'for (const page of blocks) for (const user of this.#kv.loadFailed(page, true)) users.add(user);',
    replace: '',
  },
  {
    bug: 'a late completion is accepted',
    seed: 29,
    file: 'src/connector/transfer-ledger.ts',
    find: 'this.#loads.get(id)?.isDecided === false;',
    replace: 'this.#loads.has(id);',
  },
  {
    bug: 'a completion of an earlier attempt is taken for the current one’s',
    seed: 1643,
    scenario: 'storm',
    faults: { slow: 0.9, lies: 0.5 },
    file: 'src/scheduler/external-kv.ts',
    find: 'const open = this.#loads.get(decided.load.transfer);',
    replace: 'const open = [...this.#loads.values()].find(({ job }) => job.requestId === decided.load.requestId);',
  },
  {
    bug: 'a connector that says "ask later" is asked for ever',
    seed: 34,
    file: 'src/scheduler/external-kv.ts',
    find: 'return this.#nowMs < state.askUntilMs ? undefined : nothingFound;',
    replace: 'return undefined;',
  },
  {
    bug: 'each "ask later" moves the deadline',
    seed: 34,
    file: 'src/scheduler/external-kv.ts',
    find: 'state.askUntilMs ??= Math.min',
    replace: 'state.askUntilMs = Math.min',
  },
  {
    bug: 'a block is taken without a look at its key',
    seed: 1,
    file: 'src/scheduler/external-kv.ts',
    find: 'open.get(place)?.key !== found.key',
    replace: '!open.has(place)',
  },
  {
    bug: 'the salt is not in the digest',
    seed: 1,
    file: 'src/kv/block-hash.ts',
    find: 'if (cacheSalt !== undefined) text(cacheSalt);',
    replace: '',
  },
  {
    bug: 'the model’s fingerprint is not in the digest',
    seed: 4,
    file: 'src/kv/block-hash.ts',
    find: 'text(fingerprint);',
    replace: '',
  },
  {
    bug: 'groups with one block size are not told apart',
    seed: 19,
    file: 'src/kv/proposal.ts',
    find: 'let page = published.find(g, chain.words, block);',
    replace: 'let page = published.find(0, chain.words, block);',
  },
  {
    bug: 'a lost page ends requests that never had it',
    seed: 16,
    file: 'src/scheduler/scheduler.ts',
    find: 'if (!users.has(state.kv)) continue;',
    replace: '',
  },
  {
    bug: 'a page is not held while it is saved',
    seed: 1,
    file: 'src/connector/transfer-ledger.ts',
    find: 'for (const { page } of save.blocks) this.#holds.hold(page);',
    replace: '',
  },
  {
    bug: 'a save’s pages come back before it has read them',
    seed: 1,
    file: 'src/connector/transfer-ledger.ts',
    find: 'if (load === undefined) this.#drainSave(this.#saves.get(id)!);',
    replace:
      'if (load === undefined) this.#drainSave(this.#saves.get(id)!);\n      for (const open of this.#saves.values()) if (!open.isDrained) this.#drainSave(open);',
  },
];
