import { expect, it } from 'vitest';
import { kvLoadFailed } from '../core/errors.ts';
import { requestId } from '../core/ids.ts';
import type { RequestUpdate } from '../core/request.ts';
import type { EngineEvent } from './contract.ts';
import { LoadFailureLog } from './load-failure-log.ts';

function make() {
  const events: EngineEvent[] = [];
  return { events, log: new LoadFailureLog((event) => events.push(event)) };
}
const ended = (id: string): RequestUpdate =>
  ({ requestId: requestId(id), newTokens: [], finish: { reason: 'error', error: kvLoadFailed() } }) as never;
const goesOn = (id: string): RequestUpdate => ({ requestId: requestId(id), newTokens: [] }) as never;

it('names the requests that end, and counts those that go on separately', () => {
  const { events, log } = make();
  const totals = { recoveries: 2, recoveredTokens: 32, failedRequests: 1, affectedTokens: 48 };
  log.update(totals, [goesOn('b'), ended('a')]);
  expect(events).toEqual([
    {
      level: 'error',
      message: 'Failing 1 request(s) due to KV load failure (failure_policy=fail, 16 tokens affected). Request IDs: a',
      fields: { requests: 1, tokens: 16 },
    },
    {
      level: 'warn',
      message: 'Recovered from KV load failure: 2 request(s) rescheduled (32 tokens affected).',
      fields: { requests: 2, tokens: 32 },
    },
  ]);
  log.update(totals, [goesOn('b')]);
  expect(events).toHaveLength(2);
  log.update({ ...totals, failedRequests: 3, affectedTokens: 80 }, [ended('b'), ended('c')]);
  expect(events.at(-1)?.message).toBe(
    'Failing 2 request(s) due to KV load failure (failure_policy=fail, 32 tokens affected). Request IDs: b, c',
  );
});
