import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import type { JsonObject } from '../../base/json.ts';
import { type BlockKey, groupOfKey } from '../block-key.ts';
import { readKvTransferConfig } from '../config.ts';
import { keysOf, promptOf, suiteWorld } from '../connector-checks.suite.ts';
import { EngineHarness } from '../connector-harness.suite.ts';
import { OffloadingConnector } from '../offloading/offloading-connector.ts';
import { headerBytes } from '../tier/block-header.ts';
import { suiteIdentity, suiteKey } from '../tier/tier.suite.ts';
import { PlaceEvents } from './place-events.ts';

const folder = mkdtempSync(join(tmpdir(), 'kvasir-events-'));
afterAll(() => rmSync(folder, { recursive: true }));
const [a, b] = [suiteKey('a'), suiteKey('b')];

describe('PlaceEvents', () => {
  it('of one rank are what it reports', () => {
    const events = new PlaceEvents([suiteIdentity]);
    expect(events.eventsOf([{ place: 'disk', stored: [a, b], evicted: [b] }])).toEqual([
      { kind: 'stored', keys: [a, b], place: 'disk' },
      { kind: 'removed', keys: [b], place: 'disk' },
    ]);
    expect(events.eventsOf([])).toEqual([]);
  });

  it('of two ranks: a block is stored when both have their part, and removed when one has evicted it', () => {
    const events = new PlaceEvents([suiteIdentity, suiteIdentity]);
    const stored = (place: string, ...keys: BlockKey[]) => ({ place, stored: keys, evicted: [] });
    expect(events.eventsOf([stored('disk', a), stored('redis', a)])).toEqual([]);
    expect(events.eventsOf([stored('disk', a, b)])).toEqual([{ kind: 'stored', keys: [a], place: 'disk' }]);
    expect(events.eventsOf([{ place: 'disk', stored: [], evicted: [b] }])).toEqual([
      { kind: 'removed', keys: [b], place: 'disk' },
    ]);
    // The other rank stores its part of a block that the first has evicted.
    expect(events.eventsOf([stored('disk', b)])).toEqual([]);
    expect(events.eventsOf([stored('redis', a)])).toEqual([{ kind: 'stored', keys: [a], place: 'redis' }]);
  });

  it('of two ranks: a block is stored when the only rank with layers of its KV group has stored it', () => {
    const withoutSecond = { groups: [suiteIdentity.groups[0]!, { blockSize: 16, layers: [] }] };
    const events = new PlaceEvents([suiteIdentity, withoutSecond]);
    const ofSecond = suiteKey('c', 1);
    const change = { place: 'disk', stored: [a, ofSecond], evicted: [] };
    expect(events.eventsOf([change])).toEqual([{ kind: 'stored', keys: [ofSecond], place: 'disk' }]);
    expect(events.eventsOf([{ ...change, stored: [a] }])).toEqual([{ kind: 'stored', keys: [a], place: 'disk' }]);
  });
});

describe.each([1, 2])('an engine with host memory and two disks, %i rank(s)', (ranks) => {
  it('events name the blocks that each tier stored and evicted', async () => {
    const identities = suiteWorld(ranks);
    const stored = ranks * (identities[0]!.blockBytes + headerBytes);
    const tier = (name: string, blocks: number): JsonObject => ({
      type: 'fs',
      root_dir: join(folder, `${name}-${ranks}`),
      max_bytes: blocks * stored,
    });
    const config = readKvTransferConfig({
      kvConnector: 'OffloadingConnector',
      kvRole: 'kv_both',
      kvConnectorExtraConfig: {
        spec_name: 'TieringOffloadingSpec',
        cpu_bytes_to_use: 100 * stored,
        secondary_tiers: [tier('small', 4), tier('large', 100)],
        save_timeout_seconds: 60,
      },
    });
    const connector = new OffloadingConnector(config);
    const engine = await EngineHarness.open(connector, { identities, blockCount: 40, loadTimeoutMs: 60_000 });
    const keys: BlockKey[] = [];
    for (const name of ['one', 'two', 'three']) {
      const prompt = promptOf(name, 3);
      keys.push(...keysOf(prompt));
      engine.add(name, prompt);
      await engine.runToEnd();
    }
    const named = (kind: 'stored' | 'removed', place: string): readonly BlockKey[] =>
      engine.events.flatMap((event) => (event.kind === kind && event.place === place ? event.keys : []));
    // Tiers are written in the background, and steps report what was written.
    await engine.runUntil(() => named('stored', 'disk-2').length >= keys.length);
    await engine.runUntil(() => engine.counters['now.disk.openStores'] === 0);
    expect(named('stored', 'host')).toEqual(keys);
    expect(named('stored', 'disk-2')).toHaveLength(keys.length);
    expect(new Set(named('stored', 'disk-2'))).toEqual(new Set(keys));
    expect(named('removed', 'disk-2')).toEqual([]);
    // Nine blocks, of which four stay. Stores at once may find the tier full, so some blocks may not be stored.
    const removed = new Set(named('removed', 'disk'));
    const written = new Set(named('stored', 'disk'));
    expect(removed.size).toBeGreaterThan(0);
    for (const key of [...removed, ...written]) expect(keys, `${groupOfKey(key)}`).toContain(key);
    expect(engine.counters['tier.disk.evicted']).toBeGreaterThan(0);
    await engine.close();
  });
});
