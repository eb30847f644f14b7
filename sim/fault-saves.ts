import { assert } from '../src/base/assert.ts';
import type { Prng } from '../src/base/prng.ts';
import { type BlockKey, groupOfKey } from '../src/connector/block-key.ts';
import type { SaveJob, TransferId } from '../src/connector/connector.ts';
import type { BlockId } from '../src/core/ids.ts';
import type { FakeRunner, StoredBlock } from './fake-runner.ts';
import { type FaultStores, somePlaces } from './fault-stores.ts';

interface OpenSave {
  readonly job: SaveJob;
  /** The content of the blocks when the save was ordered. */
  readonly ordered: readonly StoredBlock[];
  readonly readAtMs: number;
  readonly endAtMs: number;
  fails: boolean;
  isRead: boolean;
}

export interface FaultSavesOptions {
  /** A block is stored as soon as it is read. */
  readonly isComplete: boolean;
  /** Saves read their blocks long after they were ordered, unless a step flushes them. */
  readonly readsLate: boolean;
}

const lateMs = 1_000;

/**
 * The saves of the worker of one rank. A save reads its blocks some time after it was ordered, or when a step flushes it. The blocks must
 * then be as they were, unless they were invalidated (I5).
 */
export class FaultSaves {
  readonly #prng: Prng;
  readonly #runner: FakeRunner;
  readonly #stores: FaultStores;
  readonly #options: FaultSavesOptions;
  #saves: OpenSave[] = [];
  flushedCount = 0;

  constructor(prng: Prng, runner: FakeRunner, stores: FaultStores, options: FaultSavesOptions) {
    this.#prng = prng;
    this.#runner = runner;
    this.#stores = stores;
    this.#options = options;
  }

  get isEmpty(): boolean {
    return this.#saves.length === 0;
  }

  /** The time at which the next save ends. */
  get nextEndMs(): number {
    return Math.min(...this.#saves.map(({ endAtMs }) => endAtMs));
  }

  order(jobs: readonly SaveJob[], nowMs: number, failing: number): void {
    const { isComplete, readsLate } = this.#options;
    for (const job of jobs) {
      const readAtMs = nowMs + this.#prng.pick([0, 0, 30, 100]) + (readsLate ? lateMs : 0);
      const endAtMs = readAtMs + (isComplete ? 0 : this.#prng.pick([0, 0, 50]));
      const fails = this.#prng.chance(failing);
      this.#saves.push({ job, ordered: this.#contentOf(job), readAtMs, endAtMs, fails, isRead: false });
    }
  }

  flush(ids: readonly TransferId[]): void {
    for (const save of this.#saves) {
      if (save.isRead || !ids.includes(save.job.transfer)) continue;
      this.flushedCount++;
      this.#read(save);
    }
  }

  /** The progress of I/O up to now. */
  move(nowMs: number): void {
    for (const save of this.#saves) if (!save.isRead && save.readAtMs <= nowMs) this.#read(save);
  }

  /** Whether a save will store a block with one of these keys. */
  isSaving(keys: ReadonlySet<BlockKey>): boolean {
    return this.#saves.some(({ job, isRead }) => !isRead && job.blocks.some(({ key }) => keys.has(key)));
  }

  /** The saves that have ended; `fails`: nothing was stored. */
  ended(nowMs: number): readonly { readonly job: SaveJob; readonly fails: boolean }[] {
    return this.#saves.filter(({ isRead, endAtMs }) => isRead && endAtMs <= nowMs);
  }

  /** Stores the blocks of the saves that have ended, and forgets these saves. */
  finish(nowMs: number): void {
    if (this.#saves.length === 0) return;
    this.#saves = this.#saves.filter((save) => {
      const isOver = save.isRead && save.endAtMs <= nowMs;
      if (isOver && !this.#options.isComplete) this.#store(save);
      return !isOver;
    });
  }

  /** A save that has not read its invalidated blocks stores nothing. */
  memoryInvalidated(blocks: readonly BlockId[]): void {
    for (const save of this.#saves)
      if (!save.isRead && save.job.blocks.some(({ block }) => blocks.includes(block))) save.fails = true;
  }

  #read(save: OpenSave): void {
    save.isRead = true;
    const { job, ordered, fails } = save;
    for (const [i, { entries }] of this.#contentOf(job).entries())
      if (!fails && entries.some((entry, at) => entry !== ordered[i]!.entries[at]))
        assert(false, `I5: block ${job.blocks[i]!.block} was overwritten before save ${job.transfer} has read it`);
    if (this.#options.isComplete) this.#store(save);
  }

  #store({ job, ordered, fails }: OpenSave): void {
    if (fails) return;
    for (const [i, { key }] of job.blocks.entries()) this.#stores.save(key, ordered[i]!, somePlaces(job.transfer));
  }

  #contentOf({ blocks }: SaveJob): StoredBlock[] {
    return blocks.map(({ block, key }) => this.#runner.readBlock(block, groupOfKey(key)));
  }
}
