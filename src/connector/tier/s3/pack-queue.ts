import type { Timer, Timers } from '../../../base/timers.ts';
import type { BlockKey } from '../../block-key.ts';
import type { SaltTag } from '../../salt-tag.ts';

export interface PackQueueOptions {
  /** Blocks of one pack. */
  readonly blocksMax: number;
  readonly writesAtOnce: number;
  /** How long a block waits for others; a full pack does not wait. */
  readonly gatherMs: number;
  readonly timers: Timers;
  /**
   * Writes all blocks of the pack, or none. It copies them before it returns its promise. The signal is aborted when no
   * store needs the pack.
   */
  write(pack: readonly PackedBlock[], signal: AbortSignal): Promise<void>;
}

export interface PackedBlock {
  readonly key: BlockKey;
  /** The block, or with `isEncoded` the block as it is stored: the header and the payload. */
  readonly bytes: Uint8Array;
  readonly isEncoded?: boolean;
  /** The CRC32 of the block, if it is known. */
  readonly payloadCrc?: number | undefined;
  readonly saltTag?: SaltTag | undefined;
}

interface OpenStore extends PackedBlock {
  isOver: boolean;
  /** Set when the write begins. */
  onAborted: (() => void) | undefined;
  end(error?: unknown): void;
}

/** Gathers blocks that are stored at the same time, and writes them together. */
export class PackQueue {
  readonly #options: PackQueueOptions;
  #waiting: OpenStore[] = [];
  #running = 0;
  #timer: Timer | undefined;
  /** The waiting blocks have waited long enough. */
  #isDue: boolean = false;
  #isFlushing: boolean = false;

  constructor(options: PackQueueOptions) {
    this.#options = options;
  }

  /** Resolves when the block is written. Settles only when nothing reads `bytes` any more. */
  store(block: PackedBlock, signal: AbortSignal): Promise<void> {
    signal.throwIfAborted();
    return new Promise((resolve, reject) => {
      const store: OpenStore = {
        ...block,
        isOver: false,
        onAborted: undefined,
        end: (error) => {
          if (store.isOver) return;
          store.isOver = true;
          signal.removeEventListener('abort', onAbort);
          if (error === undefined) resolve();
          else reject(error as Error);
        },
      };
      const onAbort = (): void => {
        store.end(signal.reason);
        store.onAborted?.();
      };
      signal.addEventListener('abort', onAbort, { once: true });
      this.#waiting.push(store);
      this.#pump();
    });
  }

  /** From now on, blocks do not wait for others. */
  flush(): void {
    this.#isFlushing = true;
    this.#timer?.cancel();
    this.#timer = undefined;
    this.#pump();
  }

  #pump(): void {
    const { blocksMax, writesAtOnce } = this.#options;
    while (this.#running < writesAtOnce) {
      this.#waiting = this.#waiting.filter(({ isOver }) => !isOver);
      const isReady = this.#waiting.length >= blocksMax || this.#isDue || this.#isFlushing;
      if (!isReady || this.#waiting.length === 0) break;
      void this.#write(this.#waiting.splice(0, blocksMax));
    }
    if (this.#waiting.length === 0) this.#isDue = false;
    else if (!this.#isDue) this.#startTimer();
  }

  #startTimer(): void {
    this.#timer ??= this.#options.timers.after(this.#options.gatherMs, () => {
      this.#timer = undefined;
      this.#isDue = true;
      this.#pump();
    });
  }

  async #write(pack: readonly OpenStore[]): Promise<void> {
    this.#running++;
    const controller = new AbortController();
    for (const store of pack) {
      store.onAborted = () => {
        if (pack.every(({ isOver }) => isOver)) controller.abort(new Error('no store needs the pack any more'));
      };
    }
    try {
      await this.#options.write(pack, controller.signal);
      for (const store of pack) store.end();
    } catch (error) {
      for (const store of pack) store.end(error);
    } finally {
      this.#running--;
      this.#pump();
    }
  }
}
