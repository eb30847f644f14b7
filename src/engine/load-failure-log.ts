import type { KvLoadFailurePolicy } from '../connector/connector.ts';
import type { SchedulerStats } from '../scheduler/contract.ts';
import type { EngineNotice } from './contract.ts';

/** Says, in vLLM's words, when KV was lost and what became of the requests that had counted on it. */
export class LoadFailureLog {
  readonly #policy: KvLoadFailurePolicy;
  readonly #onNotice: ((notice: EngineNotice) => void) | undefined;
  #recoveries = 0;
  #lostTokens = 0;

  constructor(policy: KvLoadFailurePolicy, onNotice: ((notice: EngineNotice) => void) | undefined) {
    this.#policy = policy;
    this.#onNotice = onNotice;
  }

  /** After each step, with the running totals. */
  look({ recoveries, lostTokens }: SchedulerStats['transfers']): void {
    const requests = recoveries - this.#recoveries;
    if (requests === 0) return;
    const tokens = lostTokens - this.#lostTokens;
    this.#recoveries = recoveries;
    this.#lostTokens = lostTokens;
    const fields = { requests, tokens };
    this.#onNotice?.(
      this.#policy === 'fail'
        ? {
            level: 'error',
            message: `Failing ${requests} request(s) due to KV load failure (failure_policy=fail, ${tokens} tokens affected).`,
            fields,
          }
        : {
            level: 'warn',
            message: `Recovered from KV load failure: ${requests} request(s) rescheduled (${tokens} tokens affected).`,
            fields,
          },
    );
  }
}
