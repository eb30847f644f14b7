import { mkdtempSync, readdirSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import { systemClock } from '../../base/clock.ts';
import type { JsonValue } from '../../base/json.ts';
import { type RequestId, tokenCount } from '../../core/ids.ts';
import { readKvTransferConfig } from '../config.ts';
import { connectorSuite, faultSettings } from '../connector.suite.ts';
import type { KvIdentity, SchedulerConnector } from '../connector.ts';
import { promptOf, suiteWorld } from '../connector-checks.suite.ts';
import { EngineHarness } from '../connector-harness.suite.ts';
import type { FaultRule } from '../fault/fault-rules.ts';
import { createConnector } from '../registry.ts';
import { systemTimers } from '../system-timers.ts';
import { DiskTier } from '../tier/disk/tier-disk.ts';
import { suiteBytes, suiteIdentity, suiteKey } from '../tier/tier.suite.ts';
import { SharedStorageConnector } from './shared-storage-connector.ts';

const root = mkdtempSync(join(tmpdir(), 'kvasir-storage-'));
afterAll(() => rmSync(root, { recursive: true, force: true }));
let serial = 0;

const configOf = (extra: Record<string, JsonValue>, role = 'kv_both') =>
  readKvTransferConfig({
    kvConnector: 'SharedStorageConnector',
    kvRole: role,
    engineId: 'engine 1',
    kvConnectorExtraConfig: extra,
  });
const make = (extra: Record<string, JsonValue>) => new SharedStorageConnector(configOf(extra));

/**
 * So few that the next engine of two ranks can reuse the threads of a closed one: starting a thread costs more than a
 * case.
 */
const fewThreads = { loads_at_once: 2, saves_at_once: 1 };

/** Short for calls that a rule makes hang; long for others, so that they do not time out on a busy machine. */
const timeoutFor = (call: string, rules: readonly FaultRule[] = []): number =>
  rules.some(({ on, fault }) => on === call && fault === 'hung') ? 1 : 60;

connectorSuite('SharedStorageConnector', {
  newStorage: () => join(root, `${serial++}`),
  create: (storage, settings) =>
    createConnector(
      configOf(
        {
          shared_storage_path: storage,
          async_load: settings.mode === 'async',
          max_bytes: settings.maxBytes ?? 1e9,
          ...fewThreads,
          lookup_timeout_seconds: timeoutFor('has', settings.rules),
          save_timeout_seconds: timeoutFor('store', settings.rules),
          ...faultSettings(settings),
        },
        settings.role,
      ),
    ),
});

describe('SharedStorageConnector: settings', () => {
  it.each<[Record<string, JsonValue>, RegExp]>([
    [{}, /shared_storage_path` must be a directory, got nothing/],
    [{ shared_storage_path: 'x', max_bytes: 0 }, /max_bytes` must be an integer of at least 1, got 0/],
    [{ shared_storage_path: 'x', asyncload: true }, /asyncload` must be absent.*Did you mean `async_load`/],
    [{ shared_storage_path: 'x', fault_injection: { rules: [{ fault: 'x' }] } }, /rules\[0\]\.fault` must be one of/],
    [{ shared_storage_path: 'x', fault_injection: { rules: [{ fault: 'slow', blocks: ['a'] }] } }, /blocks` must be/],
  ])('%j are refused with a reason', async (extra, message) => {
    await expect(createConnector(configOf(extra))).rejects.toThrow(message);
  });
});

describe('SharedStorageConnector', () => {
  const request = { id: 'r' as RequestId, tokenCount: tokenCount(32), wanted: [] };
  const openScheduler = (storage: string, event?: (message: string) => void): Promise<SchedulerConnector> =>
    make({ shared_storage_path: storage, load_timeout_seconds: 5, ...fewThreads }).openScheduler({
      clock: systemClock,
      timers: systemTimers,
      wake: () => undefined,
      identities: [suiteIdentity],
      ...(event === undefined ? {} : { event }),
    });
  /** A directory with a block of another engine. */
  async function storageOf(other: Partial<KvIdentity>): Promise<string> {
    const storage = join(root, `${serial++}`);
    const tier = await DiskTier.open({ root: storage, identity: { ...suiteIdentity, ...other }, maxBytes: 1e6 });
    await tier.store(suiteKey('a'), suiteBytes(suiteKey('a')), new AbortController().signal);
    await tier.close();
    return storage;
  }

  it('reports folders that do not match, and counts the blocks of other models', async () => {
    const storage = await storageOf({ dtype: 'q8_0', modelName: 'Other' });
    const events: string[] = [];
    let counted = (): void => undefined;
    const isCounted = new Promise<void>((resolve) => {
      counted = resolve;
    });
    const scheduler = await openScheduler(storage, (message) => {
      events.push(message);
      if (message.includes('also has')) counted();
    });
    await isCounted;
    await scheduler.close();
    expect(events[0]).toMatch(/does not match: dtype: "q8_0", ours "f16"/);
    expect(events[1]).toMatch(/also has 1 blocks .* in 1 folders .*models: Other.*others_max_bytes/);
    expect(events).toHaveLength(2);
  });

  it('opens a directory with blocks of other models if the engine has no event handler', async () => {
    const scheduler = await openScheduler(await storageOf({ dtype: 'q8_0' }));
    expect(scheduler.takeEvents()).toEqual([]);
    await scheduler.close();
  });

  it('has the deadline of its settings, and names its engine to a router', async () => {
    const scheduler = await openScheduler(join(root, `${serial++}`));
    expect(scheduler.loadTimeoutMs).toBe(5000);
    const kvTransferParams = { do_remote_decode: true };
    expect(scheduler.requestFinished({ ...request, kvTransferParams }, () => []).kvTransferParams).toMatchObject({
      do_remote_decode: false,
      remote_engine_id: 'engine 1',
    });
    await scheduler.close();
  });

  it('test_shared_storage_connector_hashes: equal prompts have one entry, and prompts that differ have others', async () => {
    const storage = join(root, `${serial++}`);
    const engine = await EngineHarness.open(make({ shared_storage_path: storage, ...fewThreads }), {
      identities: suiteWorld(1),
      blockCount: 64,
      loadTimeoutMs: 60_000,
    });
    /** How many blocks the directory has after these tokens. */
    const entriesAfter = async (prompt: Int32Array): Promise<number> => {
      engine.invalidateBlocks();
      const request = engine.add(`${serial++}`, prompt);
      await engine.runToEnd();
      engine.end(request);
      await engine.runToDrained();
      return readdirSync(storage, { recursive: true }).filter((name) => `${name}`.endsWith('.kv')).length;
    };
    const [first, other] = [promptOf('first', 3), promptOf('other', 3)];
    expect(await entriesAfter(first)).toBe(3);
    expect(await entriesAfter(first)).toBe(3);
    expect(await entriesAfter(other)).toBe(6);
    expect(await entriesAfter(first)).toBe(6);
    // The same blocks in another order.
    const swapped = Int32Array.from([...first.slice(16, 32), ...first.slice(0, 16), ...first.slice(32)]);
    expect(await entriesAfter(swapped)).toBe(9);
    expect(await entriesAfter(swapped)).toBe(9);
    // The first block is the same.
    const longer = Int32Array.from([...first.slice(0, 16), ...other.slice(16)]);
    expect(await entriesAfter(longer)).toBe(11);
    await engine.close();
  });

  it('stores and loads with background saves', async () => {
    const storage = join(root, `${serial++}`);
    const run = async (): Promise<number> => {
      const connector = make({ shared_storage_path: storage, background_saves: true, ...fewThreads });
      const engine = await EngineHarness.open(connector, {
        identities: suiteWorld(1),
        blockCount: 64,
        loadTimeoutMs: 60_000,
      });
      const served = engine.add('serve', promptOf('a', 5));
      await engine.runToEnd();
      engine.end(served);
      await engine.runToDrained();
      expect(await engine.close()).toBe(true);
      return served.loadedBlocks;
    };
    expect([await run(), await run()]).toEqual([0, 5]);
  });
});
