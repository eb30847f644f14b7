import { assert } from '../../base/assert.ts';
import type { Clock } from '../../base/clock.ts';
import type { Timers } from '../../base/timers.ts';
import type { BlockKey } from '../block-key.ts';
import type { Permit } from '../tier/circuit-breaker.ts';
import type { GuardedTier } from '../tier/guarded-tier.ts';
import { type LeasedBlock, LeasedBlocks, type PinnedBlocks } from './leased-blocks.ts';
import type { WritePace } from './write-pace.ts';

export interface WriteBehindOptions {
  readonly clock: Clock;
  readonly timers: Timers;
  readonly storesAtOnce: number;
  readonly queuedMax: number;
  /** Of all tiers of the rank together. Absent: writes start at once. */
  readonly pace?: WritePace;
  /** How long blocks that another server is about to load are kept for the write. */
  readonly leaseMs: number;
}

const nothing = (): void => undefined;

/**
 * Writes blocks of host memory to a tier in the background. A block is pinned in host memory while it is written, not while
 * it waits, because writes may have to wait long (`WritePace`). Blocks are dropped if too many wait, and if host memory evicts
 * them first. The engine never waits for a tier, and a block that is not written is only a future miss (I9).
 */
export class WriteBehind {
  readonly #tier: GuardedTier;
  readonly #blocks: PinnedBlocks;
  readonly #options: WriteBehindOptions;
  /** In the order of their offers. */
  readonly #queue = new Set<BlockKey>();
  readonly #leased: LeasedBlocks;
  /** Blocks that are being written. */
  readonly #writing = new Set<BlockKey>();
  readonly #pumpAgain = (): void => this.#pump();
  #isClosed: boolean = false;
  #idlers: (() => void)[] = [];
  /** To be called when the next write has ended. */
  #ended: (() => void)[] = [];

  constructor(tier: GuardedTier, blocks: PinnedBlocks, options: WriteBehindOptions) {
    this.#tier = tier;
    this.#blocks = blocks;
    this.#options = options;
    const { clock, timers, leaseMs, queuedMax } = options;
    // Other blocks need room in host memory, too.
    const waitingMax = Math.ceil(queuedMax / 2);
    this.#leased = new LeasedBlocks(blocks, {
      clock,
      timers,
      leaseMs,
      waitingMax,
      expired: (key) => this.#expired(key),
    });
  }

  offer(key: BlockKey): void {
    if (!this.#isClosed && this.#leased.offer(key)) {
      this.#pump();
      return;
    }
    if (this.#isClosed || this.#queue.size >= this.#options.queuedMax) {
      this.#tier.meter.totals.dropped++;
      return;
    }
    this.#queue.add(key);
    this.#pump();
  }

  /**
   * Another server is about to load the block. If it waits to be written, it is the next one, and so it is when it is offered
   * later. True: the block does not wait, so the tier has it or lacks it.
   */
  lease(key: BlockKey): boolean {
    if (this.#isClosed || this.#writing.has(key)) return false;
    this.#leased.begin(key);
    if (this.#leased.isWaiting(key)) return false;
    if (!this.#queue.has(key)) return true;
    if (this.#leased.offer(key)) this.#queue.delete(key);
    this.#pump();
    return false;
  }

  /** The look-up of a leased block in the tier has ended. The block may have been offered meanwhile. */
  lookedUp(key: BlockKey, isStored: boolean): void {
    if (isStored) this.#leased.end(key);
    else if (this.#leased.isLeased(key)) this.offer(key);
    this.#notifyIdle();
  }

  /**
   * Blocks are removed from the tier: drops those that wait to be written. Resolves to how many, when none of the others is being
   * written.
   */
  async withdraw(isMeant: (key: BlockKey) => boolean): Promise<number> {
    const waiting = [...this.#queue].filter(isMeant);
    for (const key of waiting) this.#queue.delete(key);
    const leased = this.#leased.withdraw(isMeant);
    this.#tier.meter.totals.dropped += waiting.length + leased;
    while ([...this.#writing].some(isMeant))
      await new Promise<void>((resolve) => {
        this.#ended.push(resolve);
      });
    this.#notifyIdle();
    return waiting.length + leased;
  }

  whenIdle(): Promise<void> {
    if (this.#isIdle) return Promise.resolve();
    return new Promise((resolve) => {
      this.#idlers.push(resolve);
    });
  }

  /** Blocks that wait to be written or are being written, without stores that were given up, which may never return. */
  get openCount(): number {
    const { runningCount, stuckCount } = this.#tier.stores.calls;
    return this.#queue.size + this.#leased.waitingCount + runningCount - stuckCount;
  }

  close(): void {
    this.#isClosed = true;
    for (const _ of this.#queue) this.#tier.meter.storeFailed('closed');
    this.#queue.clear();
    this.#leased.close();
    this.#notifyIdle();
  }

  checkInvariants(): void {
    assert(this.#queue.size <= this.#options.queuedMax, `${this.#queue.size} blocks wait to be written`);
    this.#leased.checkInvariants();
  }

  #pump(): void {
    const { pace } = this.#options;
    while (this.#leased.waitingCount > 0 && this.#hasFreeStore) this.#startLeased();
    while (this.#queue.size > 0 && this.#hasFreeStore) {
      const endWrite = pace === undefined ? nothing : pace.begin(this.#pumpAgain);
      if (endWrite === undefined) break;
      if (!this.#startNext(endWrite)) endWrite();
    }
    this.#notifyIdle();
  }

  get #hasFreeStore(): boolean {
    return this.#tier.stores.calls.occupiedCount < this.#options.storesAtOnce;
  }

  /** A request of another server waits for the block, so the write does not wait for its share of the time. */
  #startLeased(): void {
    const block = this.#leased.take();
    assert(block !== undefined, 'no leased block waits');
    const permit = this.#tier.stores.breaker.tryAcquire();
    if (permit !== undefined) {
      this.#start(block, permit, nothing);
      return;
    }
    this.#blocks.unpin(block.key);
    this.#tier.meter.storeFailed('storeDown');
  }

  /** The block waits with the others. */
  #expired(key: BlockKey): void {
    this.#tier.meter.totals.leaseExpired++;
    this.offer(key);
  }

  /** False: the next block is dropped. */
  #startNext(endWrite: () => void): boolean {
    const [key] = this.#queue;
    assert(key !== undefined, 'no block waits to be written');
    this.#queue.delete(key);
    const permit = this.#tier.stores.breaker.tryAcquire();
    if (permit === undefined) {
      this.#tier.meter.storeFailed('storeDown');
      return false;
    }
    const bytes = this.#blocks.pin(key);
    if (bytes === undefined) {
      permit.withdraw();
      this.#tier.meter.totals.dropped++;
      return false;
    }
    this.#start({ key, bytes }, permit, endWrite);
    return true;
  }

  #start({ key, bytes }: LeasedBlock, permit: Permit, endWrite: () => void): void {
    this.#writing.add(key);
    const context = this.#blocks.storeContext(key);
    this.#tier.startStore(
      permit,
      { key, bytes, context },
      {
        answered: () => {
          endWrite();
          this.#pump();
        },
        ended: () => {
          this.#writing.delete(key);
          this.#blocks.unpin(key);
          for (const resolve of this.#ended.splice(0)) resolve();
          this.#pump();
        },
      },
    );
  }

  get #isIdle(): boolean {
    return this.#queue.size === 0 && this.#leased.waitingCount === 0 && this.#tier.stores.calls.runningCount === 0;
  }

  #notifyIdle(): void {
    if (!this.#isIdle) return;
    for (const resolve of this.#idlers.splice(0)) resolve();
  }
}
