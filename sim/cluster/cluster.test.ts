import { expect, test } from 'vitest';
import { inLongForm } from '../../test/support/long-form.ts';
import { Cluster } from './cluster.ts';
import { clusterRow } from './cluster-table.ts';
import { randomCluster } from './random-cluster.ts';
import { type ClustersReport, randomClusters } from './run-clusters.ts';
import { tableDefaults, tableOptions } from './table-options.ts';

const everything = { off: new Set<string>(), conversations: undefined };
/** Short conversations. */
const small = { ...tableDefaults, conversationsPerReplica: 3, turnsMax: 3, thinkSeconds: 5, systemPromptTokens: 128 };

test('random clusters lose no request and change no text', { timeout: Infinity }, async () => {
  let report: ClustersReport | undefined;
  for await (report of randomClusters(1, inLongForm(100, 8), everything));
  const { finished, retries, loads, loadFailures, faults } = report!;
  expect(finished).toBeGreaterThan(50);
  expect(retries).toBeGreaterThan(10);
  expect(loads).toBeGreaterThan(loadFailures);
  expect(loadFailures).toBeGreaterThan(10);
  expect(Object.entries(faults).filter(([, count]) => count === 0)).toEqual([]);
});

test('equal seeds give equal runs', async () => {
  for (const seed of [3, 4]) {
    const run = () => new Cluster(seed, randomCluster(seed, everything)).run();
    expect(await run()).toEqual(await run());
  }
});

test('without a tier no token is loaded; a fast tier saves prompts that a restarted replica would compute again', async () => {
  const settings = { ...small, restartSeconds: 15 };
  const none = await clusterRow(1, { replicas: 3, tierGigabits: 0 }, settings);
  const fast = await clusterRow(1, { replicas: 3, tierGigabits: 100 }, settings);
  expect(none.tierHits).toBe(0);
  expect(none.restarts).toBeGreaterThan(0);
  expect(fast.tierHits).toBeGreaterThan(0);
  expect(fast.poolHits + fast.tierHits).toBeGreaterThan(none.poolHits);
});

test('routing by load finds fewer prefixes in the pools than routing by prefix', async () => {
  const settings = { ...small, restartSeconds: 0 };
  const byPrefix = await clusterRow(1, { replicas: 4, tierGigabits: 0 }, settings);
  const byLoad = await clusterRow(1, { replicas: 4, tierGigabits: 0 }, { ...settings, routing: 'load' });
  expect(byLoad.poolHits).toBeLessThan(byPrefix.poolHits);
});

test('a cluster can be stopped', async () => {
  const signal = AbortSignal.abort(new Error('stopped'));
  await expect(new Cluster(1, tableOptions(2, 1, small)).run(signal)).rejects.toThrow('stopped');
});
