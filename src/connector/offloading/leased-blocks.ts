import { assert } from '../../base/assert.ts';
import type { Clock } from '../../base/clock.ts';
import type { Timer, Timers } from '../../base/timers.ts';
import type { BlockKey } from '../block-key.ts';
import type { TierContext } from '../tier/tier.ts';

/** Blocks in host memory that are not evicted while they are pinned. */
export interface PinnedBlocks {
  /** The bytes of the block, pinned; undefined if the block is not there. */
  pin(key: BlockKey): Uint8Array | undefined;
  unpin(key: BlockKey): void;
  /** Of a pinned block, for its store: its CRC32 when it left the pool, and its salt. */
  storeContext(key: BlockKey): TierContext;
}

export interface LeasedBlock {
  readonly key: BlockKey;
  readonly bytes: Uint8Array;
}

export interface LeasedBlocksOptions {
  readonly clock: Clock;
  readonly timers: Timers;
  readonly leaseMs: number;
  /** How many blocks may wait pinned. */
  readonly waitingMax: number;
  /** The lease of a waiting block is over, and its pin is gone. */
  readonly expired: (key: BlockKey) => void;
}

/**
 * Blocks that another server is about to load (`places/remote-decode.ts`), as one tier sees them. A leased block is written before other blocks.
 * While it waits, host memory does not evict it, until the block is written or its lease is over. So a decode that never comes costs
 * host memory for a bounded time.
 *
 *     lease --> (in host memory) --> waits, pinned --> being written --> written: no lease
 *        \__________________________________\__ leaseMs: no lease, no pin, and no haste
 */
export class LeasedBlocks {
  readonly #blocks: PinnedBlocks;
  readonly #options: LeasedBlocksOptions;
  /** The end of each lease; the earliest first, because all leases are equally long. */
  readonly #untilMs = new Map<BlockKey, number>();
  /** In the order of their offers. */
  readonly #waiting = new Map<BlockKey, Uint8Array>();
  #timer: Timer | undefined;

  constructor(blocks: PinnedBlocks, options: LeasedBlocksOptions) {
    this.#blocks = blocks;
    this.#options = options;
  }

  /** How many blocks wait to be written. */
  get waitingCount(): number {
    return this.#waiting.size;
  }

  isLeased(key: BlockKey): boolean {
    return this.#untilMs.has(key);
  }

  isWaiting(key: BlockKey): boolean {
    return this.#waiting.has(key);
  }

  /** Begins the lease of a block, or begins it again. */
  begin(key: BlockKey): void {
    this.#untilMs.delete(key);
    this.#untilMs.set(key, this.#options.clock.nowMs() + this.#options.leaseMs);
    this.#startTimer();
  }

  /** The block is to be written. False: it has no lease, it is not in host memory, or too many blocks wait. */
  offer(key: BlockKey): boolean {
    if (this.#waiting.has(key)) return true;
    if (!this.#untilMs.has(key) || this.#waiting.size >= this.#options.waitingMax) return false;
    const bytes = this.#blocks.pin(key);
    if (bytes === undefined) return false;
    this.#waiting.set(key, bytes);
    return true;
  }

  /** The next block to write, still pinned. Its lease is over: the caller writes it now. */
  take(): LeasedBlock | undefined {
    for (const [key, bytes] of this.#waiting) {
      this.#waiting.delete(key);
      this.#forget(key);
      return { key, bytes };
    }
    return undefined;
  }

  /** Ends the leases of these blocks. Returns how many of them waited to be written. */
  withdraw(isMeant: (key: BlockKey) => boolean): number {
    const meant = [...this.#untilMs.keys()].filter(isMeant);
    const waiting = meant.filter((key) => this.#waiting.has(key)).length;
    for (const key of meant) this.end(key);
    return waiting;
  }

  /** The block is stored, or cannot be stored. */
  end(key: BlockKey): void {
    if (this.#waiting.delete(key)) this.#blocks.unpin(key);
    this.#forget(key);
  }

  close(): void {
    for (const key of [...this.#untilMs.keys()]) this.end(key);
  }

  checkInvariants(): void {
    assert(this.#waiting.size <= this.#options.waitingMax, `${this.#waiting.size} leased blocks wait`);
    for (const key of this.#waiting.keys()) assert(this.#untilMs.has(key), `${key} waits without a lease`);
  }

  #forget(key: BlockKey): void {
    this.#untilMs.delete(key);
    if (this.#untilMs.size > 0) return;
    this.#timer?.cancel();
    this.#timer = undefined;
  }

  #startTimer(): void {
    const [first] = this.#untilMs.values();
    if (first === undefined) return;
    // A timer that is too early starts the next one.
    this.#timer ??= this.#options.timers.after(Math.max(0, first - this.#options.clock.nowMs()), () => {
      this.#timer = undefined;
      this.#expire();
    });
  }

  #expire(): void {
    const nowMs = this.#options.clock.nowMs();
    for (const [key, untilMs] of this.#untilMs) {
      if (untilMs > nowMs) break;
      const wasWaiting = this.#waiting.has(key);
      this.end(key);
      if (wasWaiting) this.#options.expired(key);
    }
    this.#startTimer();
  }
}
