import { expect, test } from 'vitest';
import type { ConnectorStats, TierTotals } from '../connector/connector-stats.ts';
import { BreakerLog } from './breaker-log.ts';
import type { EngineEvent } from './contract.ts';

test('The log of circuit breakers reports each tier that fails and that works again, once', () => {
  const events: EngineEvent[] = [];
  const log = new BreakerLog((event) => events.push(event));
  const take = () => events.splice(0).map(({ message, fields }) => [message, fields]);
  const at = (
    nowMs: number,
    load: number,
    loadFailed: TierTotals['loadFailed'] & {},
    others: ConnectorStats['levels'] = {},
  ) =>
    log.update(nowMs, () => ({
      tiers: { 'disk:/a.b': { loadFailed } },
      levels: { ...others, tiers: { 'disk:/a.b': { breakerOpen: { load } } } },
    }));

  at(0, 0, { missing: 3 });
  expect(take()).toEqual([]);
  // Counters are not read again within a second.
  at(999, 1, {});
  expect(take()).toEqual([]);
  const failed = { missing: 3, timedOut: 5 };
  at(1000, 2, failed, { breakerOpen: { save: 1 } });
  expect(take()).toEqual([
    ['The KV store fails: it gets no saves until a probe succeeds. KV that it would have had is computed again.', {}],
    [
      'The tier disk:/a.b fails: it gets no loads until a probe succeeds. KV that it would have had is computed again.',
      { tier: 'disk:/a.b', failures: 'missing 3, timedOut 5' },
    ],
  ]);
  at(2000, 2, failed, { breakerOpen: { save: 1 } });
  expect(take()).toEqual([]);
  at(3000, 0, failed, { breakerOpen: { save: 1 } });
  expect(take()).toEqual([['The tier disk:/a.b works again: it gets loads.', { tier: 'disk:/a.b' }]]);
});
