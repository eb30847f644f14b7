import type { ClusterMutant } from './mutants-of-clusters.ts';

const folder = 'src/connector/offloading';

/** Bugs in host memory and the tiers below it. */
export const stackMutants: readonly ClusterMutant[] = [
  {
    bug: 'a damaged block of a lower tier counts as loaded',
    breaks: ['I2', 'I10'],
    file: `${folder}/tier-stack.ts`,
    find: 'if (failure === undefined) {',
    replace: "if (failure === undefined || failure === 'corrupt') {",
  },
  {
    bug: 'a block that no tier gives counts as loaded',
    breaks: ['I2', 'I10'],
    file: `${folder}/tier-stack.ts`,
    find: "if (reason === 'missing') reason = failure;\n      }\n      return reason;",
    replace: "if (reason === 'missing') reason = failure;\n      }\n      return undefined;",
  },
  {
    bug: 'only the first tier gets blocks',
    breaks: ['write-behind:'],
    file: `${folder}/tier-stack.ts`,
    find: 'for (const secondary of this.#secondaries) secondary.offer(key);',
    replace: 'this.#secondaries[0]?.offer(key);',
  },
  {
    bug: 'a detached tier stays',
    breaks: ['order:'],
    file: `${folder}/tier-stack.ts`,
    find: 'this.#secondaries = this.#secondaries.filter((tier) => tier !== secondary);',
    replace: '',
  },
  {
    bug: 'a load that took too long counts as loaded',
    breaks: ['I2', 'I10'],
    file: 'src/connector/tier/guarded-tier.ts',
    find: 'into.set(memory);\n          resolve(reason);',
    replace: "into.set(memory);\n          resolve(reason === 'timedOut' ? undefined : reason);",
  },
  {
    bug: 'a block is not pinned in host memory while it is written',
    breaks: ['I10', 'is not pinned'],
    file: `${folder}/write-behind.ts`,
    find: 'const bytes = this.#blocks.pin(key);',
    replace: 'const bytes = this.#blocks.pin(key);\n    if (bytes !== undefined) this.#blocks.unpin(key);',
  },
  {
    bug: 'a block stays pinned after its write',
    breaks: ['I8'],
    file: `${folder}/write-behind.ts`,
    find: '          this.#blocks.unpin(key);\n          for (const resolve',
    replace: '          for (const resolve',
  },
  {
    bug: 'a block for which the queue has no room is not counted',
    breaks: ['write-behind:'],
    file: `${folder}/write-behind.ts`,
    find: 'this.#tier.meter.totals.dropped++;\n      return;',
    replace: 'return;',
  },
  {
    bug: 'an order to remove blocks does not wait for their writes',
    breaks: ['order:'],
    file: `${folder}/write-behind.ts`,
    find: 'while ([...this.#writing].some(isMeant))',
    replace: 'while (false && [...this.#writing].some(isMeant))',
  },
  {
    bug: 'the end of a lease leaves its block pinned',
    breaks: ['I8'],
    file: `${folder}/leased-blocks.ts`,
    find: 'if (this.#waiting.delete(key)) this.#blocks.unpin(key);',
    replace: 'this.#waiting.delete(key);',
  },
  {
    bug: 'host memory evicts a block that is being written',
    breaks: ['I10', 'I7', 'is not pinned', 'pinned blocks'],
    file: 'src/connector/tier/host/tier-host.ts',
    find: 'this.#entries.get(key)!.pinCount === 0 && !kept.has(key)',
    replace: '!kept.has(key)',
  },
  {
    bug: 'writes that had to wait are never tried again',
    breaks: ['I8'],
    file: `${folder}/write-pace.ts`,
    find: '      this.#callWaiting();\n      this.#startTimer();',
    replace: '',
  },
  {
    bug: 'the slot of a block that is removed while it is written is used at once',
    breaks: ['I10', 'is not pinned', 'two blocks are in one slot'],
    file: 'src/connector/tier/host/tier-host.ts',
    find: '    if (entry.pinCount === 0) {\n      this.#release(key, entry);\n    } else {',
    replace: '    if (entry.pinCount >= 0) {\n      this.#release(key, entry);\n    } else {',
  },
  {
    bug: 'host memory evicts the blocks of pinned prefixes',
    breaks: ['pin:'],
    file: 'src/connector/tier/host/tier-host.ts',
    find: 'if (this.pins.keeps(key)) passed.push(key);',
    replace: 'if (this.pins.keeps(key) && false) passed.push(key);',
  },
  {
    bug: 'a cache salt may have more blocks than its quota',
    breaks: ['quota:'],
    file: 'src/connector/tier/host/tier-host.ts',
    find: 'missing * this.#slotBytes - this.#salts.quotaBytes;',
    replace: '0 * missing - this.#salts.quotaBytes;',
  },
];
