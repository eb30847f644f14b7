import type { BlockSaveFailure, SaveBlock, SaveJob, TransferId } from '../connector.ts';
import type { SaveFailureReason } from '../reasons.ts';
import { saltTagOf } from '../salt-tag.ts';
import { isGivenUpBy, type TransferQueue } from '../transfer/transfer-queue.ts';
import {
  type SavedBlock,
  type SavePath,
  type SavePathOptions,
  type SaveReport,
  saveQueue,
  yieldToSteps,
} from './save-path.ts';
import { StagingBuffers } from './staging-buffers.ts';

export interface StagedSavesOptions extends SavePathOptions {
  readonly blockBytes: number;
  /** Of all copies. Blocks for which there is no room are not saved. */
  readonly bufferBytes: number;
}

interface StagedItem extends SavedBlock {
  /** A copy of the block. */
  readonly bytes: Uint8Array;
}

/** A save whose blocks are not all copied. */
interface Copying {
  readonly blocks: readonly SaveBlock[];
  readonly items: StagedItem[];
  next: number;
}

/**
 * Saves whose blocks are copied before they are stored, so that no block stays pinned for a slow store. A save is drained
 * when its blocks are copied.
 */
export class StagedSaves implements SavePath {
  readonly #options: StagedSavesOptions;
  readonly #buffers: StagingBuffers;
  readonly #queue: TransferQueue<StagedItem, SaveFailureReason>;
  readonly #copying = new Map<TransferId, Copying>();
  #isCopying: boolean = false;
  #drained: TransferId[] = [];
  #failures: BlockSaveFailure[] = [];

  constructor(options: StagedSavesOptions) {
    this.#options = options;
    this.#buffers = new StagingBuffers(options.blockBytes, options.bufferBytes);
    this.#queue = saveQueue(options, (item, signal) => this.#save(item, signal));
  }

  get lateCount(): number {
    return this.#queue.lateCount;
  }

  get readsPool(): boolean {
    return this.#copying.size > 0;
  }

  submit({ transfer, blocks }: SaveJob): void {
    if (blocks.length === 0) {
      this.#copied(transfer, []);
      return;
    }
    this.#copying.set(transfer, { blocks, items: [], next: 0 });
    if (!this.#isCopying) void this.#copyAll();
  }

  flush(ids: readonly TransferId[]): Promise<void> {
    for (const id of ids) this.#copyRest(id);
    return Promise.resolve();
  }

  takeReport(): SaveReport {
    const { decided, failures } = this.#queue.takeReport();
    for (const { transfer, item, reason, wasRunning } of failures) {
      // An item that never ran returns its buffer here; an item that ran returns its buffer when it ends.
      if (isGivenUpBy(reason) && !wasRunning) this.#buffers.give(item.bytes);
      this.#failures.push({ transfer, key: item.key, reason });
    }
    const report = { decided, drained: this.#drained, failures: this.#failures };
    this.#drained = [];
    this.#failures = [];
    return report;
  }

  async whenDrained(): Promise<void> {
    await this.flush([...this.#copying.keys()]);
    await this.#queue.whenDrained();
  }

  close(): void {
    this.#queue.close();
  }

  checkInvariants(): void {
    this.#queue.checkInvariants();
  }

  async #copyAll(): Promise<void> {
    this.#isCopying = true;
    while (this.#copying.size > 0) {
      await yieldToSteps();
      const [transfer] = this.#copying.keys();
      if (transfer !== undefined) this.#copyNext(transfer);
    }
    this.#isCopying = false;
  }

  #copyRest(transfer: TransferId): void {
    while (this.#copying.has(transfer)) this.#copyNext(transfer);
  }

  /** Copies one block of the save. After the last block, the save is drained, and its copies may be stored. */
  #copyNext(transfer: TransferId): void {
    const copying = this.#copying.get(transfer);
    if (copying === undefined) return;
    const { blocks, items } = copying;
    const { key, block, cacheSalt } = blocks[copying.next++]!;
    const bytes = this.#buffers.take();
    if (bytes === undefined) this.#failures.push({ transfer, key, reason: 'queueFull' });
    else {
      bytes.set(this.#options.bytesOf(block));
      items.push({ key, bytes, saltTag: saltTagOf(cacheSalt) });
    }
    if (copying.next < blocks.length) return;
    this.#copying.delete(transfer);
    this.#copied(transfer, items);
  }

  #copied(transfer: TransferId, items: readonly StagedItem[]): void {
    this.#drained.push(transfer);
    this.#queue.submit(transfer, items, { timeoutMs: this.#options.timeoutMs });
    this.#options.onChange();
  }

  async #save(item: StagedItem, signal: AbortSignal): Promise<SaveFailureReason | undefined> {
    try {
      return await this.#options.store(item, item.bytes, signal);
    } finally {
      this.#buffers.give(item.bytes);
    }
  }
}
