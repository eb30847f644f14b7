import { AssertionError, assert } from '../../base/assert.ts';
import type { Clock } from '../../base/clock.ts';
import type { BlockKey } from '../block-key.ts';
import type { LoadFailureReason } from '../reasons.ts';
import { CircuitBreaker, type CircuitBreakerOptions, circuitBreakerDefaults } from '../tier/circuit-breaker.ts';
import type { StagingBuffers } from '../tier/staging-buffers.ts';
import type { Tier, TierContext } from '../tier/tier.ts';
import { countsOfBreaker } from '../tier/tier-counters.ts';
import type { Timers } from '../timers.ts';
import { TierMeter } from './tier-meter.ts';
import { type PinnedBlocks, WriteBehind } from './write-behind.ts';
import type { WritePace } from './write-pace.ts';

export interface SecondaryTierOptions {
  readonly clock: Clock;
  readonly timers: Timers;
  /** Time limit of one load. After that, the next tier is tried. */
  readonly loadTimeoutMs: number;
  readonly storeTimeoutMs: number;
  readonly storesAtOnce: number;
  /** How many blocks may wait to be written. */
  readonly queuedMax: number;
  readonly breaker?: CircuitBreakerOptions;
  /** As in `WriteBehindOptions`. */
  readonly pace?: WritePace;
}

/**
 * A tier below host memory. Adds what each such tier needs: a deadline for every call, a circuit breaker for loads and
 * one for stores, a bounded queue of blocks to write, and counters.
 *
 * A load fills a buffer and not the pool. So a load that hangs keeps a buffer, and another tier can give the block.
 */
export class SecondaryTier {
  readonly name: string;
  readonly #tier: Tier;
  readonly #options: SecondaryTierOptions;
  readonly #buffers: StagingBuffers;
  readonly #loadBreaker: CircuitBreaker;
  readonly #meter = new TierMeter();
  readonly #writes: WriteBehind;

  constructor(tier: Tier, blocks: PinnedBlocks, buffers: StagingBuffers, options: SecondaryTierOptions) {
    this.name = tier.name;
    this.#tier = tier;
    this.#options = options;
    this.#buffers = buffers;
    const breaker = options.breaker ?? circuitBreakerDefaults;
    this.#loadBreaker = new CircuitBreaker(options.clock, breaker);
    this.#writes = new WriteBehind(tier, blocks, this.#meter, { ...options, breaker });
  }

  /** The tier itself, for look-ups and tests. */
  get tier(): Tier {
    return this.#tier;
  }

  /**
   * A buffer with the verified block, which the caller gives back, or the reason of the failure. Settles by the
   * deadline, or when the signal is aborted. A tier that still writes a buffer keeps it until it has ended.
   */
  load(key: BlockKey, signal: AbortSignal, context?: TierContext): Promise<Uint8Array | LoadFailureReason> {
    if (signal.aborted) return Promise.resolve(this.#failed('cancelled'));
    const permit = this.#loadBreaker.tryAcquire();
    if (permit === undefined) return Promise.resolve(this.#failed('storeDown'));
    const buffer = this.#buffers.take();
    if (buffer === undefined) {
      permit.withdraw();
      return Promise.resolve(this.#failed('queueFull'));
    }
    const { clock, timers, loadTimeoutMs } = this.#options;
    const startedMs = clock.nowMs();
    const controller = new AbortController();
    return new Promise((resolve) => {
      let isOver = false;
      const end = (result: Uint8Array | LoadFailureReason): void => {
        assert(!isOver, 'a load ends twice');
        isOver = true;
        timer.cancel();
        signal.removeEventListener('abort', cancel);
        resolve(result);
      };
      const giveUp = (reason: 'timedOut' | 'cancelled'): void => {
        if (isOver) return;
        if (reason === 'timedOut') permit.fail();
        else permit.withdraw();
        end(this.#failed(reason));
        controller.abort(new Error(`the load of a block from ${this.name} was given up: ${reason}`));
      };
      const cancel = (): void => giveUp('cancelled');
      const timer = timers.after(loadTimeoutMs, () => giveUp('timedOut'));
      signal.addEventListener('abort', cancel, { once: true });
      this.#tier.load(key, buffer, controller.signal, context).then(
        (reason) => {
          if (isOver) {
            this.#buffers.give(buffer);
            return;
          }
          permit.succeed();
          if (reason === undefined) {
            this.#meter.loaded(buffer.length, clock.nowMs() - startedMs);
            end(buffer);
            return;
          }
          this.#buffers.give(buffer);
          end(this.#failed(reason));
        },
        (error: unknown) => {
          if (error instanceof AssertionError) throw error;
          this.#buffers.give(buffer);
          if (isOver) return;
          permit.fail();
          end(this.#failed('storeFailed'));
        },
      );
    });
  }

  /** Writes the block in the background, or drops it if too many blocks wait. */
  offer(key: BlockKey): void {
    this.#writes.offer(key);
  }

  /** Resolves when no block waits to be written and none is being written. */
  whenWritten(): Promise<void> {
    return this.#writes.whenIdle();
  }

  counters(): Readonly<Record<string, number>> {
    // The tier's own counters say what the meter cannot know, such as evictions.
    const { evicted = 0 } = this.#tier.counters();
    return {
      ...this.#meter.counters(),
      ...(evicted === 0 ? {} : { evicted }),
      ...countsOfBreaker('load', this.#loadBreaker),
      ...this.#writes.counters(),
    };
  }

  levels(): Readonly<Record<string, number>> {
    return {
      ...this.#tier.levels?.(),
      ...this.#writes.levels(),
      'breakerOpen.load': this.#loadBreaker.state === 'closed' ? 0 : 1,
    };
  }

  /** Drops the blocks that wait to be written. */
  close(): Promise<void> {
    this.#writes.close();
    return this.#tier.close();
  }

  checkInvariants(): void {
    this.#writes.checkInvariants();
  }

  #failed(reason: LoadFailureReason): LoadFailureReason {
    this.#meter.loadFailed(reason);
    return reason;
  }
}
