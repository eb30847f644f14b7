import { assert } from '../../base/assert.ts';
import type { Clock } from '../../base/clock.ts';

export interface CircuitBreakerOptions {
  /** Consecutive failures that open the breaker. */
  readonly failuresMax: number;
  /** How long the breaker first stays open. Each failed probe doubles the time. */
  readonly coolDownMs: number;
  readonly coolDownMaxMs: number;
}

export const circuitBreakerDefaults: CircuitBreakerOptions = {
  failuresMax: 5,
  coolDownMs: 1_000,
  coolDownMaxMs: 30_000,
};

export type CircuitState = 'closed' | 'open' | 'halfOpen';

/**
 * Stops calls to a store that is down, so that not every request waits until its deadline.
 *
 *              failuresMax in a row                 coolDown has passed: one probe allowed
 *     closed --------------------------> open ------------------------------------------> halfOpen
 *       ^                                  ^ <---- the probe fails: coolDown doubles ----- |
 *       |______________________________ the probe succeeds ________________________________|
 *
 * A call that rejects or times out counts as a failure. A missing or corrupt block is an answer and counts as success.
 */
export class CircuitBreaker {
  readonly #clock: Clock;
  readonly #options: CircuitBreakerOptions;
  #state: CircuitState = 'closed';
  #failures = 0;
  #coolDownMs: number;
  #openedAtMs = 0;
  #probe: Permit | undefined;
  /** The outcomes of permits of an earlier period are ignored. */
  #period = 0;
  #opened = 0;

  constructor(clock: Clock, options: CircuitBreakerOptions = circuitBreakerDefaults) {
    assert(
      options.failuresMax >= 1 && options.coolDownMs > 0,
      'a breaker needs failuresMax of at least 1 and a coolDownMs above 0',
    );
    this.#clock = clock;
    this.#options = options;
    this.#coolDownMs = options.coolDownMs;
  }

  /** The current state: an open breaker is half open after its cool-down. */
  get state(): CircuitState {
    const isOver = this.#state === 'open' && this.#clock.nowMs() - this.#openedAtMs >= this.#coolDownMs;
    return isOver ? 'halfOpen' : this.#state;
  }

  /** 1: not closed. For statistics that are added over ranks. */
  get openCount(): 0 | 1 {
    return this.state === 'closed' ? 0 : 1;
  }

  /** How often the breaker has opened. */
  get openedCount(): number {
    return this.#opened;
  }

  /** A permit for one call to the store, to be settled once; undefined = do not call. */
  tryAcquire(): Permit | undefined {
    this.#state = this.state;
    if (this.#state === 'open') return undefined;
    if (this.#state === 'closed') return new Permit(this.#settler(this.#period), false);
    // One probe at a time: further calls would only wait for a store that hangs.
    if (this.#probe !== undefined) return undefined;
    this.#probe = new Permit(this.#settler(this.#period), true);
    return this.#probe;
  }

  #settler(period: number): (permit: Permit, outcome: PermitOutcome) => void {
    return (permit, outcome) => {
      const wasProbe = this.#probe === permit;
      if (wasProbe) this.#probe = undefined;
      if (period !== this.#period || outcome === 'withdrawn') return;
      if (outcome === 'succeeded') {
        this.#failures = 0;
        if (!wasProbe) return;
        this.#state = 'closed';
        this.#coolDownMs = this.#options.coolDownMs;
        this.#period++;
      } else if (wasProbe) {
        this.#coolDownMs = Math.min(this.#coolDownMs * 2, this.#options.coolDownMaxMs);
        this.#open();
      } else if (++this.#failures >= this.#options.failuresMax) this.#open();
    };
  }

  #open(): void {
    this.#state = 'open';
    this.#openedAtMs = this.#clock.nowMs();
    this.#failures = 0;
    this.#opened++;
    this.#period++;
  }
}

type PermitOutcome = 'succeeded' | 'failed' | 'withdrawn';

export class Permit {
  /** The call finds out whether the store works again. */
  readonly isProbe: boolean;
  readonly #settle: (permit: Permit, outcome: PermitOutcome) => void;
  #isSettled: boolean = false;

  constructor(settle: (permit: Permit, outcome: PermitOutcome) => void, isProbe: boolean) {
    this.#settle = settle;
    this.isProbe = isProbe;
  }

  succeed(): void {
    this.#end('succeeded');
  }

  fail(): void {
    this.#end('failed');
  }

  /** The store was not called, or its answer is not needed. This says nothing about the store. */
  withdraw(): void {
    this.#end('withdrawn');
  }

  /** Only the first outcome counts: a call that has timed out may succeed later. */
  #end(outcome: PermitOutcome): void {
    if (this.#isSettled) return;
    this.#isSettled = true;
    this.#settle(this, outcome);
  }
}
