import { expect, test } from 'vitest';
import { type ConnectorStats, changeOfStats, namedCounts, sumOfStats } from './connector-stats.ts';

/** The changes that are reported of these states, one after the other. */
const changesOf = (states: readonly ConnectorStats[]): ConnectorStats[] =>
  states.map((state, i) => changeOfStats(state, states[i - 1] ?? {}));

test('the changes of all reports add up to the totals and the current levels', () => {
  const states: ConnectorStats[] = [
    { own: { stored: 2 }, levels: { own: { blocks: 2, stuckThreads: 0 } } },
    { own: { stored: 5 }, levels: { own: { blocks: 3, stuckThreads: 4 } } },
    { own: { stored: 5 }, levels: { own: { blocks: 1, stuckThreads: 0 } } },
  ];
  const changes = changesOf(states);
  expect(changes[0]).toEqual({ own: { stored: 2 }, levels: { own: { blocks: 2 } } });
  expect(sumOfStats(changes)).toEqual(states[2]);
});

test('the statistics of a tier are added over ranks, each count for itself', () => {
  const ofRank = (failed: object): ConnectorStats => ({
    tiers: { disk: { loadedBlocks: 3, loadLatency: { 2: 3 }, loadFailed: failed }, redis: { storedBlocks: 1 } },
  });
  expect(sumOfStats([ofRank({ corrupt: 1 }), undefined, ofRank({ corrupt: 2, missing: 1 })])).toEqual({
    tiers: {
      disk: { loadedBlocks: 6, loadLatency: { 2: 6 }, loadFailed: { corrupt: 3, missing: 1 } },
      redis: { storedBlocks: 2 },
    },
  });
});

test('a count that is absent is 0', () => {
  const states = [{ own: { evicted: 3 }, levels: { own: { otherBlocks: 7 } } }, {}, { own: { evicted: 1 } }];
  const changes = changesOf(states);
  expect(changes[1]).toEqual({ own: { evicted: -3 }, levels: { own: { otherBlocks: -7 } } });
  expect(sumOfStats(changes)).toEqual({ own: { evicted: 1 }, levels: { own: { otherBlocks: 0 } } });
});

test('a report does not change the statistics that it was made of', () => {
  const state: ConnectorStats = { tiers: { disk: { loadFailed: { missing: 1 } } } };
  sumOfStats([state, state, changeOfStats(state, state)]);
  expect(state).toEqual({ tiers: { disk: { loadFailed: { missing: 1 } } } });
});

test('names say the tier, the count and the reason', () => {
  const stats: ConnectorStats = {
    loadedBlocks: 9,
    loadFailed: { corrupt: 1 },
    breakerOpened: { save: 2 },
    own: { stored: 4, 'lookupFailed.ELOOP': 3 },
    tiers: { 'disk:/a.b': { loadLatency: { 13: 1 }, storeFailed: { timedOut: 5 }, breakerOpened: { lookup: 1 } } },
    levels: {
      breakerOpen: { load: 1 },
      own: { blocks: 8 },
      tiers: { disk: { bytes: 7, breakerOpen: { store: 2 }, stuckThreads: 6 } },
    },
  };
  expect(namedCounts(stats)).toEqual({
    loadedBlocks: 9,
    'loadFailed.corrupt': 1,
    'breakerOpened.save': 2,
    'tier.stored': 4,
    'tier.lookupFailed.ELOOP': 3,
    'tier.disk:/a.b.loadLatency.13': 1,
    'tier.disk:/a.b.storeFailed.timedOut': 5,
    'tier.disk:/a.b.breakerOpened.lookup': 1,
    'now.breakerOpen.load': 1,
    'now.blocks': 8,
    'now.disk.bytes': 7,
    'now.disk.breakerOpen.store': 2,
    'now.disk.stuckThreads': 6,
  });
});
