import type { Mutant } from './mutants.ts';

/** Bugs of saves: blocks that are overwritten while a save reads them, and saves that are lost. */
export const saveMutants: readonly Mutant[] = [
  {
    bug: 'a block is not pinned while a save reads it',
    breaks: ['I5', 'is not pinned'],
    seed: 28,
    file: 'src/connector/transfer/transfer-ledger.ts',
    find: "if (this.#protection === 'pins') this.#pins.pin(block);\n    else ",
    replace: "if (this.#protection !== 'pins') ",
  },
  {
    bug: 'the blocks of a save are unpinned before the save has read them',
    breaks: ['I5'],
    seed: 8,
    file: 'src/connector/transfer/transfer-ledger.ts',
    find: 'if (load === undefined) this.#drainSave(this.#saves.get(id)!);\n      else this.#closeLoad(load);',
    replace:
      'if (load !== undefined) this.#closeLoad(load);\n      for (const open of this.#saves.values()) if (!open.isDrained) this.#drainSave(open);',
  },
  {
    bug: 'a step overwrites blocks that saves read, and does not flush these saves',
    breaks: ['I5'],
    seed: 2,
    scenario: 'offload',
    file: 'src/connector/transfer/transfer-ledger.ts',
    find: 'this.#jobsToFlush.push(open.save.transfer);',
    replace: '',
  },
  {
    bug: 'a save is not flushed if its block is overwritten in the step that orders the save',
    breaks: ['I5'],
    seed: 4,
    scenario: 'offload',
    file: 'src/connector/transfer/transfer-ledger.ts',
    find: 'if (save.blocks.some(({ block }) => isOverwritten(block))) this.#flush(open);',
    replace: '',
  },
  {
    bug: 'the pool allocates a block, and the saves that read it are not flushed',
    breaks: ['I5'],
    checks: false,
    seed: 2,
    scenario: 'offload',
    file: 'src/scheduler/external-kv.ts',
    find: 'this.#newlyValid.allocated(block);\n        this.ledger.willOverwrite(block);',
    replace: 'this.#newlyValid.allocated(block);',
  },
  {
    bug: 'an invalid block is computed again while a save reads it',
    breaks: ['I5'],
    seed: 1,
    scenario: 'crash',
    file: 'src/scheduler/external-kv.ts',
    find: 'for (const block of blocks) this.ledger.willOverwrite(block);',
    replace: '',
  },
  {
    bug: 'a block that the step overwrites is not offered to be saved, so a preempted request computes it again',
    breaks: ['I3'],
    seed: 6,
    scenario: 'offload',
    file: 'src/scheduler/external-kv.ts',
    find: 'newlyValid: newlyValid.all,',
    replace: 'newlyValid: newlyValid.all.filter(({ block }) => !newlyValid.isOverwritten(block)),',
  },
];
