import { assert } from '../../base/assert.ts';
import type { Clock } from '../../base/clock.ts';

export interface CircuitBreakerOptions {
  /** Failures in a row that open it. */
  readonly failuresMax: number;
  /** How long it stays open the first time; doubled at each probe that fails. */
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
 * Keeps a store that is down from costing every request its deadline.
 *
 *              failuresMax in a row                 coolDown has passed: one probe may go
 *     closed --------------------------> open ------------------------------------------> halfOpen
 *       ^                                  ^ <---- the probe fails: coolDown doubles ----- |
 *       |______________________________ the probe succeeds ________________________________|
 *
 * Down is what rejects or times out. A block that is missing or wrong is an answer: it counts as success.
 */
export class CircuitBreaker {
  readonly #clock: Clock;
  readonly #options: CircuitBreakerOptions;
  #state: CircuitState = 'closed';
  #failures = 0;
  #coolDownMs: number;
  #openedAtMs = 0;
  #probe: Permit | undefined;
  /** Permits of an earlier period say nothing of this one. */
  #period = 0;
  #opened = 0;

  constructor(clock: Clock, options: CircuitBreakerOptions = circuitBreakerDefaults) {
    assert(options.failuresMax >= 1 && options.coolDownMs > 0, 'a breaker that is never closed');
    this.#clock = clock;
    this.#options = options;
    this.#coolDownMs = options.coolDownMs;
  }

  /** As of now: an open breaker whose time is over is half open. */
  get state(): CircuitState {
    const isOver = this.#state === 'open' && this.#clock.nowMs() - this.#openedAtMs >= this.#coolDownMs;
    return isOver ? 'halfOpen' : this.#state;
  }

  /** How often it has opened. */
  get openedCount(): number {
    return this.#opened;
  }

  /** Leave to ask the store, to be answered for exactly once; undefined = do not ask. */
  tryAcquire(): Permit | undefined {
    this.#state = this.state;
    if (this.#state === 'open') return undefined;
    if (this.#state === 'closed') return new Permit(this.#settler(this.#period));
    // One probe at a time: a crowd would only queue up behind a store that hangs.
    if (this.#probe !== undefined) return undefined;
    this.#probe = new Permit(this.#settler(this.#period));
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
  readonly #settle: (permit: Permit, outcome: PermitOutcome) => void;
  #isSettled: boolean = false;

  constructor(settle: (permit: Permit, outcome: PermitOutcome) => void) {
    this.#settle = settle;
  }

  succeed(): void {
    this.#end('succeeded');
  }

  fail(): void {
    this.#end('failed');
  }

  /** It was not asked, or not waited for: says nothing about the store. */
  withdraw(): void {
    this.#end('withdrawn');
  }

  /** The first answer counts: a call that has timed out may succeed later. */
  #end(outcome: PermitOutcome): void {
    if (this.#isSettled) return;
    this.#isSettled = true;
    this.#settle(this, outcome);
  }
}
