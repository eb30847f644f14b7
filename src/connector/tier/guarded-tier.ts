import { AssertionError } from '../../base/assert.ts';
import type { Clock } from '../../base/clock.ts';
import type { Timer, Timers } from '../../base/timers.ts';
import type { BlockKey } from '../block-key.ts';
import type { TierTotals } from '../connector-stats.ts';
import type { LoadFailureReason, SaveFailureReason } from '../reasons.ts';
import { StallWatch } from '../transfer/stall-watch.ts';
import { hasTimedOut } from '../transfer/transfer-queue.ts';
import { CircuitBreaker, type CircuitBreakerOptions, circuitBreakerDefaults, type Permit } from './circuit-breaker.ts';
import type { StagingBuffers } from './staging-buffers.ts';
import type { StoreAnswer, Tier, TierContext } from './tier.ts';
import { TierMeter } from './tier-meter.ts';

/** Why a call has no answer of the store. */
export type NoAnswer = 'timedOut' | 'cancelled' | 'storeFailed';

export interface CallLimits {
  /** The call is given up at an abort. Without `timeoutMs`, the signal has the deadline (`TransferQueue`). */
  readonly signal?: AbortSignal | undefined;
  readonly timeoutMs?: number | undefined;
  /** How long the call may take to answer after its deadline. Default 0. */
  readonly graceMs?: number;
}

export interface CallEvents<Answer> {
  /** Once, when the call has ended or was given up. */
  answered(answer: Answer | NoAnswer): void;
  /** Once, after `answered`: the call touches no memory any more (I5). */
  ended?: (() => void) | undefined;
}

/**
 * The calls of one kind of a store that may fail or hang: look-ups, loads or stores.
 *
 *     breaker.tryAcquire --> start --> answered: by the deadline or at the abort --> ended: perhaps never
 *             \__ undefined: the breaker is open, and the store is not called
 *
 * A call that rejects or passes its deadline is a failure for the breaker. A call that was cancelled says nothing.
 */
export class Guard {
  readonly breaker: CircuitBreaker;
  readonly calls: StallWatch<Permit>;
  readonly #timers: Timers;

  constructor(clock: Clock, timers: Timers, breaker: CircuitBreakerOptions = circuitBreakerDefaults) {
    this.#timers = timers;
    this.breaker = new CircuitBreaker(clock, breaker);
    this.calls = new StallWatch({ clock, timers, onStall: () => undefined });
  }

  /** `permit`: of the breaker, for this call. */
  start<Answer>(
    permit: Permit,
    call: (signal: AbortSignal) => Promise<Answer>,
    { signal, timeoutMs, graceMs = 0 }: CallLimits,
    events: CallEvents<Answer>,
  ): void {
    const controller = new AbortController();
    let isGivenUp = false;
    let hasAnswered = false;
    let timer: Timer | undefined;
    const answer = (result: Answer | NoAnswer): void => {
      if (hasAnswered) return;
      hasAnswered = true;
      timer?.cancel();
      signal?.removeEventListener('abort', onAbort);
      events.answered(result);
    };
    const giveUp = (reason: 'timedOut' | 'cancelled', cause: unknown): void => {
      isGivenUp = true;
      if (reason === 'timedOut') permit.fail();
      else permit.withdraw();
      this.calls.giveUp(permit);
      controller.abort(cause);
      if (reason === 'timedOut' && graceMs > 0) timer = this.#timers.after(graceMs, () => answer(reason));
      else answer(reason);
    };
    const onAbort = (): void => {
      const isDeadline = timeoutMs === undefined && hasTimedOut(signal!);
      giveUp(isDeadline ? 'timedOut' : 'cancelled', signal!.reason);
    };
    const finish = (): void => {
      this.calls.finish(permit);
      timer?.cancel();
      signal?.removeEventListener('abort', onAbort);
    };
    this.calls.begin(permit);
    if (signal?.aborted === true) {
      onAbort();
      finish();
      events.ended?.();
      return;
    }
    signal?.addEventListener('abort', onAbort, { once: true });
    if (timeoutMs !== undefined)
      timer = this.#timers.after(timeoutMs, () => giveUp('timedOut', new Error(`no answer in ${timeoutMs} ms`)));
    const started = async (): Promise<Answer> => call(controller.signal);
    started().then(
      (result) => {
        finish();
        if (!isGivenUp) permit.succeed();
        answer(result);
        events.ended?.();
      },
      (error: unknown) => {
        finish();
        // Our own bug is no failure of the store: it ends the process as an unhandled rejection.
        if (error instanceof AssertionError) throw error;
        if (!isGivenUp) permit.fail();
        answer(isGivenUp ? 'timedOut' : 'storeFailed');
        events.ended?.();
      },
    );
  }
}

export interface GuardedTierOptions {
  readonly clock: Clock;
  readonly timers: Timers;
  readonly breaker?: CircuitBreakerOptions | undefined;
  /** Absent: the signals of the calls have the deadlines. */
  readonly loadTimeoutMs?: number;
  readonly storeTimeoutMs?: number;
  /**
   * Loads fill these, and a load that is over is copied. So it settles by its deadline, and a call that hangs keeps a buffer
   * and not the memory of the caller.
   */
  readonly buffers?: StagingBuffers;
}

/**
 * A tier with all that its callers need: a deadline for each call, a circuit breaker for loads and one for stores, a bound
 * of stuck calls, and statistics. A disk that cannot be written may still be readable, so it has two breakers. Look-ups
 * have their own (`places/tier-lookups.ts`).
 */
export class GuardedTier {
  readonly tier: Tier;
  readonly meter = new TierMeter();
  readonly loads: Guard;
  readonly stores: Guard;
  readonly #options: GuardedTierOptions;
  readonly #closing = new AbortController();

  constructor(tier: Tier, options: GuardedTierOptions) {
    this.tier = tier;
    this.#options = options;
    const { clock, timers, breaker } = options;
    this.loads = new Guard(clock, timers, breaker);
    this.stores = new Guard(clock, timers, breaker);
  }

  get name(): string {
    return this.tier.name;
  }

  /** As `Tier.load`: settles when nothing writes `into` any more. */
  async load(
    key: BlockKey,
    into: Uint8Array,
    signal: AbortSignal,
    context?: TierContext,
  ): Promise<LoadFailureReason | undefined> {
    const startedMs = this.#options.clock.nowMs();
    const reason = await this.#load(key, into, signal, context);
    if (reason === undefined) this.meter.loaded(into.length, this.#options.clock.nowMs() - startedMs);
    else this.meter.loadFailed(reason);
    return reason;
  }

  /** As `Tier.store`: settles when nothing reads `bytes` any more. */
  store(
    key: BlockKey,
    bytes: Uint8Array,
    signal: AbortSignal,
    context?: TierContext,
  ): Promise<StoreAnswer | SaveFailureReason> {
    const permit = this.stores.breaker.tryAcquire();
    if (permit === undefined) return Promise.resolve('storeDown');
    return new Promise((resolve) => {
      let result: StoreAnswer | NoAnswer;
      this.startStore(
        permit,
        { key, bytes, signal, ...(context === undefined ? {} : { context }) },
        {
          answered: (answer) => {
            result = answer;
          },
          ended: () => resolve(result),
        },
      );
    });
  }

  startStore(
    permit: Permit,
    { key, bytes, signal, context }: StoreCall,
    { answered, ended }: CallEvents<StoreAnswer>,
  ): void {
    const { clock, storeTimeoutMs: timeoutMs } = this.#options;
    const startedMs = clock.nowMs();
    this.stores.start(
      permit,
      (until) => this.storeInTier(key, bytes, until, context),
      { signal, timeoutMs },
      {
        answered: (answer) => {
          if (answer === 'stored') this.meter.stored(bytes.length, clock.nowMs() - startedMs);
          else if (answer !== 'alreadyStored') this.meter.storeFailed(answer === 'full' ? 'storeFull' : answer);
          answered(answer);
        },
        ended,
      },
    );
  }

  totals(): TierTotals {
    // The tier's own counters say what the meter cannot know.
    const { evicted = 0 } = this.tier.counters();
    return { ...this.meter.totals, evicted, breakerOpened: this.breakers('store').breakerOpened };
  }

  /** `stores`: what the calls of `store` are for. */
  breakers(stores: 'store' | 'save') {
    const [load, store] = [this.loads.breaker, this.stores.breaker];
    return {
      breakerOpened: { load: load.openedCount, [stores]: store.openedCount },
      levels: { breakerOpen: { load: load.openCount, [stores]: store.openCount } },
    };
  }

  /** Ends the probes of loads. */
  close(): Promise<void> {
    this.#closing.abort();
    return this.tier.close();
  }

  protected storeInTier(...call: Parameters<Tier['store']>): Promise<StoreAnswer> {
    return this.tier.store(...call);
  }

  /**
   * With buffers, the probe of a breaker runs in the background, and the answer is `storeDown`: no request waits for a tier
   * that was down a moment ago.
   */
  #load(
    key: BlockKey,
    into: Uint8Array,
    signal: AbortSignal,
    context: TierContext | undefined,
  ): Promise<LoadFailureReason | undefined> {
    if (signal.aborted) return Promise.resolve('cancelled');
    const permit = this.loads.breaker.tryAcquire();
    if (permit === undefined) return Promise.resolve('storeDown');
    const { buffers, loadTimeoutMs: timeoutMs } = this.#options;
    const memory = buffers === undefined ? into : buffers.take();
    if (memory === undefined) {
      permit.withdraw();
      return Promise.resolve('queueFull');
    }
    const isAside = buffers !== undefined && permit.isProbe;
    const call = (until: AbortSignal) => this.tier.load(key, memory, until, isAside ? undefined : context);
    const limits = { signal: isAside ? this.#closing.signal : signal, timeoutMs };
    return new Promise((resolve) => {
      let result: LoadFailureReason | undefined;
      if (isAside) resolve('storeDown');
      this.loads.start(permit, call, limits, {
        answered: (reason) => {
          result = reason;
          if (buffers === undefined) return;
          if (reason === undefined && !isAside) into.set(memory);
          resolve(reason);
        },
        ended: () => {
          buffers?.give(memory);
          resolve(result);
        },
      });
    });
  }
}

export interface StoreCall {
  readonly key: BlockKey;
  readonly bytes: Uint8Array;
  readonly signal?: AbortSignal;
  readonly context?: TierContext;
}
