import type { Clock } from '../base/clock.ts';
import type { KvLoadFailurePolicy } from '../connector/connector.ts';
import type { SchedulerStats } from '../scheduler/contract.ts';
import { BreakerLog } from './breaker-log.ts';
import type { EngineEvent } from './contract.ts';
import { LoadFailureLog } from './load-failure-log.ts';

/** Reports to the program that runs the engine: failed loads, and tiers that fail or work again. */
export class TransferLog {
  readonly #loadFailures: LoadFailureLog;
  readonly #breakers: BreakerLog;
  readonly #clock: Clock;

  constructor(policy: KvLoadFailurePolicy, onEvent: ((event: EngineEvent) => void) | undefined, clock: Clock) {
    this.#loadFailures = new LoadFailureLog(policy, onEvent);
    this.#breakers = new BreakerLog(onEvent);
    this.#clock = clock;
  }

  /** Called after each step with the running totals: beside the next step, which then starts earlier, or after the last one. */
  update(transfers: SchedulerStats['transfers']): void {
    this.#loadFailures.update(transfers);
    this.#breakers.update(this.#clock.nowMs(), () => transfers.connector);
  }
}
