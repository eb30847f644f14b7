import { expect, test } from 'vitest';
import { BreakerLog } from './breaker-log.ts';
import type { EngineEvent } from './contract.ts';

test('The log of circuit breakers reports each tier that fails and that works again, once', () => {
  const events: EngineEvent[] = [];
  const log = new BreakerLog((event) => events.push(event));
  const take = () => events.splice(0).map(({ message, fields }) => [message, fields]);
  const at = (nowMs: number, counters: Record<string, number>) => log.update(nowMs, () => counters);

  at(0, { 'now.disk:/a.b.breakerOpen.load': 0, 'tier.disk:/a.b.loadFailed.missing': 3 });
  expect(take()).toEqual([]);
  // Counters are not read again within a second.
  at(999, { 'now.disk:/a.b.breakerOpen.load': 1 });
  expect(take()).toEqual([]);
  const failing = {
    'now.disk:/a.b.breakerOpen.load': 2,
    'tier.disk:/a.b.loadFailed.missing': 3,
    'tier.disk:/a.b.loadFailed.timedOut': 5,
    'now.breakerOpen.save': 1,
  };
  at(1000, failing);
  expect(take()).toEqual([
    [
      'The tier disk:/a.b fails: it gets no loads until a probe succeeds. KV that it would have had is computed again.',
      { tier: 'disk:/a.b', failures: 'missing 3, timedOut 5' },
    ],
    ['The KV store fails: it gets no saves until a probe succeeds. KV that it would have had is computed again.', {}],
  ]);
  at(2000, failing);
  expect(take()).toEqual([]);
  at(3000, { ...failing, 'now.disk:/a.b.breakerOpen.load': 0 });
  expect(take()).toEqual([['The tier disk:/a.b works again: it gets loads.', { tier: 'disk:/a.b' }]]);
});
