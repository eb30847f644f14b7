import { AssertionError, assert } from '../../base/assert.ts';
import type { Clock } from '../../base/clock.ts';
import type { Timers } from '../../base/timers.ts';
import type { BlockKey } from '../block-key.ts';
import type { PlaceChange } from '../connector.ts';
import type { LoadFailureReason } from '../reasons.ts';
import {
  CircuitBreaker,
  type CircuitBreakerOptions,
  circuitBreakerDefaults,
  type Permit,
} from '../tier/circuit-breaker.ts';
import type { LookupAnswers } from '../tier/look-up.ts';
import type { StagingBuffers } from '../tier/staging-buffers.ts';
import type { StoreAnswer, Tier, TierContext } from '../tier/tier.ts';
import { countsOfBreaker } from '../tier/tier-counters.ts';
import type { PinnedBlocks } from './leased-blocks.ts';
import { TierMeter } from './tier-meter.ts';
import { WriteBehind } from './write-behind.ts';
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
  /** As in `WriteBehindOptions`; default 30 s. */
  readonly leaseMs?: number;
}

const defaultLeaseMs = 30_000;

interface Load {
  readonly key: BlockKey;
  readonly permit: Permit;
  readonly signal: AbortSignal;
  readonly context: TierContext | undefined;
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
  readonly #closing = new AbortController();
  #stored: BlockKey[] = [];

  constructor(tier: Tier, blocks: PinnedBlocks, buffers: StagingBuffers, options: SecondaryTierOptions) {
    this.name = tier.name;
    this.#tier = tier;
    this.#options = options;
    this.#buffers = buffers;
    const breaker = options.breaker ?? circuitBreakerDefaults;
    this.#loadBreaker = new CircuitBreaker(options.clock, breaker);
    const written = async (...call: Parameters<Tier['store']>): Promise<StoreAnswer> => {
      const answer = await tier.store(...call);
      if (answer === 'stored') this.#stored.push(call[0]);
      return answer;
    };
    this.#writes = new WriteBehind({ name: tier.name, store: written }, blocks, this.#meter, {
      ...options,
      breaker,
      leaseMs: options.leaseMs ?? defaultLeaseMs,
    });
  }

  /** The tier itself, for look-ups and tests. */
  get tier(): Tier {
    return this.#tier;
  }

  /**
   * A buffer with the verified block, which the caller gives back, or the reason of the failure. Settles by the
   * deadline, or when the signal is aborted. A tier that still writes a buffer keeps it until it has ended.
   *
   * If the breaker is half open, the load is its probe. The probe runs in the background, and the answer is `storeDown`:
   * no request waits for a tier that was down a moment ago.
   */
  load(key: BlockKey, signal: AbortSignal, context?: TierContext): Promise<Uint8Array | LoadFailureReason> {
    if (signal.aborted) return Promise.resolve(this.#failed('cancelled'));
    const isProbe = this.#loadBreaker.state !== 'closed';
    const permit = this.#loadBreaker.tryAcquire();
    if (permit === undefined) return Promise.resolve(this.#failed('storeDown'));
    const buffer = this.#buffers.take();
    if (buffer === undefined) {
      permit.withdraw();
      return Promise.resolve(this.#failed('queueFull'));
    }
    if (!isProbe) return this.#loadInto(buffer, { key, permit, signal, context });
    void this.#loadInto(buffer, { key, permit, signal: this.#closing.signal, context: undefined }).then((loaded) => {
      if (typeof loaded !== 'string') this.#buffers.give(loaded);
    });
    return Promise.resolve(this.#failed('storeDown'));
  }

  #loadInto(buffer: Uint8Array, { key, permit, signal, context }: Load): Promise<Uint8Array | LoadFailureReason> {
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

  /**
   * Another server is about to load these blocks: they are written first. Blocks in host memory that the tier has lost
   * meanwhile are written again.
   */
  lease(keys: readonly BlockKey[], isInHost: (key: BlockKey) => boolean): void {
    const settled = keys.filter((key) => this.#writes.lease(key)).filter(isInHost);
    if (settled.length > 0) void this.#writeMissing(settled);
  }

  async #writeMissing(keys: readonly BlockKey[]): Promise<void> {
    const controller = new AbortController();
    const timer = this.#options.timers.after(this.#options.loadTimeoutMs, () => controller.abort());
    let answers: LookupAnswers = [];
    try {
      answers = await this.#tier.has(keys, controller.signal);
    } catch (error) {
      if (error instanceof AssertionError) throw error;
      // Not known: the breaker of the writes finds out.
    }
    timer.cancel();
    for (const [i, key] of keys.entries()) this.#writes.lookedUp(key, answers[i] === true);
  }

  /** The blocks that were written and evicted since the last call; undefined if there are none. */
  takeChange(): PlaceChange | undefined {
    const [stored, evicted] = [this.#stored, this.#tier.takeEvicted()];
    this.#stored = [];
    return stored.length === 0 && evicted.length === 0 ? undefined : { place: this.name, stored, evicted };
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
    this.#closing.abort();
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
