import { AssertionError, assert } from '../../base/assert.ts';
import type { Clock } from '../../base/clock.ts';
import type { BlockKey } from '../block-key.ts';
import { CircuitBreaker, type CircuitBreakerOptions, type Permit } from '../tier/circuit-breaker.ts';
import type { Tier } from '../tier/tier.ts';
import type { Timers } from '../timers.ts';
import type { TierMeter } from './tier-meter.ts';
import type { WritePace } from './write-pace.ts';

/** Blocks in host memory that are not evicted while they are pinned. */
export interface PinnedBlocks {
  /** The bytes of the block, pinned; undefined if the block is not there. */
  pin(key: BlockKey): Uint8Array | undefined;
  unpin(key: BlockKey): void;
  /** Of a pinned block: its CRC32 when it left the pool. */
  payloadCrc(key: BlockKey): number;
}

export interface WriteBehindOptions {
  readonly clock: Clock;
  readonly timers: Timers;
  readonly storeTimeoutMs: number;
  readonly storesAtOnce: number;
  readonly queuedMax: number;
  readonly breaker: CircuitBreakerOptions;
  /** Of all tiers of the rank together. Absent: writes start at once. */
  readonly pace?: WritePace;
}

const nothing = (): void => undefined;

/** Up to this many stores that were given up and have not returned do not count as running. */
const stuckMax = 16;

/**
 * Writes blocks of host memory to a tier in the background. A block is pinned in host memory while it is written, not while
 * it waits, because writes may have to wait long (`WritePace`). Blocks are dropped if too many wait, and if host memory evicts
 * them first. The engine never waits for a tier, and a block that is not written is only a future miss (I9).
 */
export class WriteBehind {
  readonly #tier: Pick<Tier, 'name' | 'store'>;
  readonly #blocks: PinnedBlocks;
  readonly #meter: TierMeter;
  readonly #options: WriteBehindOptions;
  readonly #breaker: CircuitBreaker;
  /** In the order of their offers. */
  readonly #queue = new Set<BlockKey>();
  readonly #pumpAgain = (): void => this.#pump();
  #running = 0;
  /** Of the running stores, those that were given up. */
  #stuck = 0;
  #isClosed: boolean = false;
  #idlers: (() => void)[] = [];

  constructor(tier: Pick<Tier, 'name' | 'store'>, blocks: PinnedBlocks, meter: TierMeter, options: WriteBehindOptions) {
    this.#tier = tier;
    this.#blocks = blocks;
    this.#meter = meter;
    this.#options = options;
    this.#breaker = new CircuitBreaker(options.clock, options.breaker);
  }

  offer(key: BlockKey): void {
    if (this.#isClosed || this.#queue.size >= this.#options.queuedMax) {
      this.#meter.dropped();
      return;
    }
    this.#queue.add(key);
    this.#pump();
  }

  whenIdle(): Promise<void> {
    if (this.#queue.size === 0 && this.#running === 0) return Promise.resolve();
    return new Promise((resolve) => {
      this.#idlers.push(resolve);
    });
  }

  counters(): Readonly<Record<string, number>> {
    return { 'breakerOpened.store': this.#breaker.openedCount };
  }

  levels(): Readonly<Record<string, number>> {
    return {
      // Without stores that were given up, which may never return.
      openStores: this.#queue.size + this.#running - this.#stuck,
      'breakerOpen.store': this.#breaker.state === 'closed' ? 0 : 1,
    };
  }

  close(): void {
    this.#isClosed = true;
    for (const _ of this.#queue) this.#meter.storeFailed('closed');
    this.#queue.clear();
    this.#notifyIdle();
  }

  checkInvariants(): void {
    assert(this.#running >= this.#stuck && this.#stuck >= 0, `${this.#stuck} of ${this.#running} stores are stuck`);
    assert(this.#queue.size <= this.#options.queuedMax, `${this.#queue.size} blocks wait to be written`);
  }

  #pump(): void {
    const { storesAtOnce, pace } = this.#options;
    while (this.#queue.size > 0 && this.#running - Math.min(this.#stuck, stuckMax) < storesAtOnce) {
      const endWrite = pace === undefined ? nothing : pace.begin(this.#pumpAgain);
      if (endWrite === undefined) break;
      if (!this.#startNext(endWrite)) endWrite();
    }
    this.#notifyIdle();
  }

  /** False: the next block is dropped. */
  #startNext(endWrite: () => void): boolean {
    const [key] = this.#queue;
    assert(key !== undefined, 'no block waits to be written');
    this.#queue.delete(key);
    const permit = this.#breaker.tryAcquire();
    if (permit === undefined) {
      this.#meter.storeFailed('storeDown');
      return false;
    }
    const bytes = this.#blocks.pin(key);
    if (bytes === undefined) {
      permit.withdraw();
      this.#meter.dropped();
      return false;
    }
    this.#start({ key, bytes }, permit, endWrite);
    return true;
  }

  #start(
    { key, bytes }: { readonly key: BlockKey; readonly bytes: Uint8Array },
    permit: Permit,
    endWrite: () => void,
  ): void {
    const { clock, timers, storeTimeoutMs } = this.#options;
    const startedMs = clock.nowMs();
    const controller = new AbortController();
    let isGivenUp = false;
    this.#running++;
    const timer = timers.after(storeTimeoutMs, () => {
      isGivenUp = true;
      this.#stuck++;
      endWrite();
      permit.fail();
      this.#meter.storeFailed('timedOut');
      controller.abort(new Error(`the store of a block in ${this.#tier.name} was given up: timedOut`));
      this.#pump();
    });
    const end = (): void => {
      timer.cancel();
      endWrite();
      this.#running--;
      if (isGivenUp) this.#stuck--;
      this.#blocks.unpin(key);
    };
    this.#tier.store(key, bytes, controller.signal, { payloadCrc: this.#blocks.payloadCrc(key) }).then(
      (answer) => {
        end();
        if (!isGivenUp) {
          permit.succeed();
          if (answer === 'stored') this.#meter.stored(bytes.length, clock.nowMs() - startedMs);
          else if (answer === 'full') this.#meter.storeFailed('storeFull');
        }
        this.#pump();
      },
      (error: unknown) => {
        end();
        if (error instanceof AssertionError) throw error;
        if (!isGivenUp) {
          permit.fail();
          this.#meter.storeFailed('storeFailed');
        }
        this.#pump();
      },
    );
  }

  #notifyIdle(): void {
    if (this.#queue.size > 0 || this.#running > 0) return;
    for (const resolve of this.#idlers.splice(0)) resolve();
  }
}
