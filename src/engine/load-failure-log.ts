import { assert } from '../base/assert.ts';
import { kvLoadFailed } from '../core/errors.ts';
import type { RequestUpdate } from '../core/request.ts';
import type { SchedulerStats } from '../scheduler/contract.ts';
import type { EngineEvent } from './contract.ts';

type Totals = Pick<SchedulerStats['transfers'], 'recoveries' | 'recoveredTokens' | 'failedRequests' | 'affectedTokens'>;

/** Reports failed loads, with vLLM's messages: how many requests and tokens were affected, and how they ended. */
export class LoadFailureLog {
  readonly #onEvent: ((event: EngineEvent) => void) | undefined;
  #before: Totals = { recoveries: 0, recoveredTokens: 0, failedRequests: 0, affectedTokens: 0 };

  constructor(onEvent: ((event: EngineEvent) => void) | undefined) {
    this.#onEvent = onEvent;
  }

  /** Called after each step with the running totals and the updates since the last call. */
  update(now: Totals, updates: readonly RequestUpdate[]): void {
    const before = this.#before;
    const ended = now.failedRequests - before.failedRequests;
    const recovered = now.recoveries - before.recoveries;
    if (ended === 0 && recovered === 0) return;
    assert(ended >= 0 && recovered >= 0, 'the totals of failed loads fell');
    this.#before = { ...now };
    const recoveredTokens = now.recoveredTokens - before.recoveredTokens;
    const tokens = now.affectedTokens - before.affectedTokens - recoveredTokens;
    if (ended > 0) {
      const ids = updates.filter(endsByFailedLoad).map(({ requestId }) => requestId);
      const what = `failure_policy=fail, ${tokens} tokens affected`;
      this.#onEvent?.({
        level: 'error',
        message: `Failing ${ended} request(s) due to KV load failure (${what}). Request IDs: ${ids.join(', ')}`,
        fields: { requests: ended, tokens },
      });
    }
    if (recovered === 0) return;
    this.#onEvent?.({
      level: 'warn',
      message: `Recovered from KV load failure: ${recovered} request(s) rescheduled (${recoveredTokens} tokens affected).`,
      fields: { requests: recovered, tokens: recoveredTokens },
    });
  }
}

const endsByFailedLoad = ({ finish }: RequestUpdate): boolean => finish?.error?.code === kvLoadFailed.definition.code;
