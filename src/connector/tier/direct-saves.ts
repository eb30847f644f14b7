import type { BlockId } from '../../core/ids.ts';
import type { SaveJob, TransferId } from '../connector.ts';
import type { SaveFailureReason } from '../reasons.ts';
import { saltTagOf } from '../salt-tag.ts';
import type { TransferQueue } from '../transfer/transfer-queue.ts';
import {
  type SavedBlock,
  type SavePath,
  type SavePathOptions,
  type SaveReport,
  saveQueue,
  yieldToSteps,
} from './save-path.ts';

interface DirectItem extends SavedBlock {
  readonly block: BlockId;
}

/** Saves that the tier reads from the pool itself. Their blocks stay pinned until they are stored. */
export class DirectSaves implements SavePath {
  readonly #options: SavePathOptions;
  readonly #queue: TransferQueue<DirectItem, SaveFailureReason>;
  #isFlushing: boolean = false;

  constructor(options: SavePathOptions) {
    this.#options = options;
    this.#queue = saveQueue(options, (item, signal) => this.#save(item, signal));
  }

  get lateCount(): number {
    return this.#queue.lateCount;
  }

  get readsPool(): boolean {
    return this.#queue.openCount > 0;
  }

  submit({ transfer, blocks }: SaveJob): void {
    const items = blocks.map(({ key, block, cacheSalt }) => ({ key, block, saltTag: saltTagOf(cacheSalt) }));
    this.#queue.submit(transfer, items, { timeoutMs: this.#options.timeoutMs });
  }

  async flush(ids: readonly TransferId[]): Promise<void> {
    this.#isFlushing = true;
    const drained = ids.map((id) => this.#queue.flush(id));
    this.#isFlushing = false;
    await Promise.all(drained);
  }

  takeReport(): SaveReport {
    const { decided, drained, failures } = this.#queue.takeReport();
    return {
      decided,
      drained,
      failures: failures.map(({ transfer, item, reason }) => ({ transfer, key: item.key, reason })),
    };
  }

  whenDrained(): Promise<void> {
    return this.#queue.whenDrained();
  }

  close(): void {
    this.#queue.close();
  }

  checkInvariants(): void {
    this.#queue.checkInvariants();
  }

  /** Items that a flush starts run up to the store during the call of `flush`. */
  async #save(item: DirectItem, signal: AbortSignal): Promise<SaveFailureReason | undefined> {
    if (!this.#isFlushing) await yieldToSteps();
    return this.#options.store(item, this.#options.bytesOf(item.block), signal);
  }
}
