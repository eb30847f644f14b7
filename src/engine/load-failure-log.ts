import { assert } from '../base/assert.ts';
import type { KvLoadFailurePolicy } from '../connector/connector.ts';
import type { SchedulerStats } from '../scheduler/contract.ts';
import type { EngineEvent } from './contract.ts';

/** Reports failed loads, with vLLM's messages: how many requests and tokens were affected, and how they ended. */
export class LoadFailureLog {
  readonly #policy: KvLoadFailurePolicy;
  readonly #onEvent: ((event: EngineEvent) => void) | undefined;
  #recoveries = 0;
  #affectedTokens = 0;

  constructor(policy: KvLoadFailurePolicy, onEvent: ((event: EngineEvent) => void) | undefined) {
    this.#policy = policy;
    this.#onEvent = onEvent;
  }

  /** Called after each step with the running totals. */
  update({ recoveries, affectedTokens }: SchedulerStats['transfers']): void {
    const requests = recoveries - this.#recoveries;
    const tokens = affectedTokens - this.#affectedTokens;
    assert(requests >= 0 && tokens >= 0, `recoveries fell by ${-requests}, or affected tokens by ${-tokens}`);
    if (requests === 0) return;
    this.#recoveries = recoveries;
    this.#affectedTokens = affectedTokens;
    const fields = { requests, tokens };
    this.#onEvent?.(
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
