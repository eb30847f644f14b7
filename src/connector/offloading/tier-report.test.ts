import { describe, expect, it } from 'vitest';
import type { ConnectorStats, TierLevels } from '../connector-stats.ts';
import { TierMeter } from '../tier/tier-meter.ts';
import { tierReports } from './tier-report.ts';

/** The statistics of an engine whose tier `disk` has these counts. */
const statsOf = (meter: TierMeter, levels: TierLevels = {}): ConnectorStats => ({
  savedBlocks: 3,
  tiers: { disk: meter.totals },
  levels: { tiers: { disk: levels } },
});

describe('reports of tiers', () => {
  it('an engine without tiers has none', () => {
    expect(tierReports({ savedBlocks: 3, own: { stored: 3 }, levels: { own: { bytes: 5 } } })).toEqual([]);
  });

  it('a tier that has done nothing has no speed', () => {
    const [report] = tierReports(statsOf(new TierMeter()));
    expect(report).toMatchObject({ name: 'disk', dropped: 0, evicted: 0, openBreakers: [] });
    expect(report!.loads).toEqual({
      blocks: 0,
      bytes: 0,
      gigabytesPerSecond: undefined,
      p50Ms: undefined,
      p99Ms: undefined,
      failures: {},
    });
  });

  it('speed and latencies are those of the calls that gave a block', () => {
    const meter = new TierMeter();
    for (let i = 0; i < 98; i++) meter.loaded(1e6, 0.4);
    meter.loaded(1e6, 90);
    meter.loaded(1e6, 7_000);
    meter.stored(1e6, 1.5);
    for (let i = 0; i < 3; i++) meter.loadFailed('corrupt');
    meter.storeFailed('timedOut');
    const [report] = tierReports(statsOf(meter));
    expect(report!.loads).toMatchObject({ blocks: 100, bytes: 1e8, p50Ms: 0.5, p99Ms: 100, failures: { corrupt: 3 } });
    expect(report!.loads.gigabytesPerSecond).toBeCloseTo(100 / (98 * 0.4 + 7_090), 6);
    expect(report!.stores).toMatchObject({ blocks: 1, p50Ms: 2, failures: { timedOut: 1 } });
    meter.loaded(1e6, 7_000);
    expect(tierReports(statsOf(meter))[0]!.loads.p99Ms).toBe(Infinity);
  });

  it('names the breakers that are not closed, and what the tier holds', () => {
    const levels = {
      breakerOpen: { load: 0, store: 2 },
      bytes: 10,
      maxBytes: 20,
      blocks: 1,
      openStores: 4,
    };
    expect(tierReports(statsOf(new TierMeter(), levels))[0]).toMatchObject({
      openBreakers: ['store'],
      storedBytes: 10,
      maxBytes: 20,
      storedBlocks: 1,
      openStores: 4,
    });
  });
});
