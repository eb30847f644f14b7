import { randomBytes } from 'node:crypto';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, relative } from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import type { JsonObject, JsonValue } from '../../base/json.ts';
import { readKvTransferConfig } from '../config.ts';
import type { KvConnector, SchedulerConnectorContext, WorkerConnectorContext } from '../connector.ts';
import { hostTierBytes } from '../offloading/host-bytes.ts';
import { createConnector, registerConnector } from '../registry.ts';
import { systemTimers } from '../system-timers.ts';
import { suiteIdentity } from '../tier/tier.suite.ts';
import { MultiConnector } from './multi-connector.ts';

const folder = mkdtempSync(join(tmpdir(), 'kvasir-multi-settings-'));
afterAll(() => rmSync(folder, { recursive: true, force: true }));
const path = join(folder, 'kv');
const file = join(folder, 'mine.mjs');
writeFileSync(
  file,
  `export class Mine {
     constructor(config) { globalThis.configsOfMine.push(config); }
     async openScheduler() { return { name: 'mine', close: async () => {} }; }
     async openWorker() { return { shutdown: async () => {} }; }
   }`,
);
const keys = join(folder, 'keys');
writeFileSync(keys, `${randomBytes(32).toString('hex')}\n`, { mode: 0o600 });

const shared = (folder = path, more: JsonObject = {}): JsonObject => ({
  kv_connector: 'SharedStorageConnector',
  kv_connector_extra_config: { shared_storage_path: folder },
  ...more,
});
const mine: JsonObject = { kv_connector: 'Mine', kv_connector_module_path: file };
const offloading = (...tiers: string[]): JsonObject => ({
  kv_connector: 'OffloadingConnector',
  kv_connector_extra_config: { tiers },
});
const configOf = (connectors: JsonValue, more: JsonObject = {}, extra: JsonObject = {}) =>
  readKvTransferConfig({
    kv_connector: 'MultiConnector',
    kv_role: 'kv_both',
    kv_connector_extra_config: { connectors, ...extra },
    ...more,
  });
const create = (...args: Parameters<typeof configOf>) => createConnector(configOf(...args));

describe('a list of connectors', () => {
  it('is made of built-in connectors and those of modules, each with its own settings', async () => {
    const configs: unknown[] = [];
    Object.assign(globalThis, { configsOfMine: configs });
    const own = { ...mine, engine_id: 'own', kv_connector_extra_config: { x: 1 } };
    const connector = await create([shared(), own, { kvConnector: 'Mine', kvConnectorModulePath: file }], {
      engine_id: 'list',
      kv_load_failure_policy: 'fail',
    });
    expect(connector).toBeInstanceOf(MultiConnector);
    const given = { kvRole: 'kv_both', kvLoadFailurePolicy: 'fail', kvConnectorModulePath: file };
    expect(configs).toMatchObject([
      { ...given, engineId: 'own', kvConnectorExtraConfig: { x: 1 } },
      { ...given, engineId: 'list', kvConnectorExtraConfig: {} },
    ]);
  });

  it('may be in a list', async () => {
    const inside = { kv_connector: 'MultiConnector', kv_connector_extra_config: { connectors: [shared()] } };
    expect((await create([inside, mine])).stores).toEqual([`disk ${path}`]);
  });

  it.each<[string, JsonValue, string]>([
    ['nothing', null, 'connectors` must be a list of connectors'],
    ['no list', {}, 'connectors` must be a list'],
    ['an empty list', [], 'connectors` must be a list with a length'],
    ['a name', ['SharedStorageConnector'], 'connectors\\[0\\]` must be an object, got "SharedStorageConnector"'],
    ['no name', [shared(), {}], 'connectors\\[1\\].kv_connector` must be the name of a connector'],
    ['an unknown name', [shared(), { kv_connector: 'Nixl' }], 'There is no connector `Nixl`.*MultiConnector'],
    ['a field that is not known', [shared(path, { role: 'x' })], 'connectors\\[0\\].role` must be absent'],
    ['a field of vLLM without meaning', [shared(path, { kv_rank: 1 })], 'connectors\\[0\\].kv_rank` must be absent'],
    ['two spellings', [{ ...mine, kvConnector: 'x' }], 'connectors\\[0\\].kv_connector` must be given once'],
    ['a wrong role', [{ ...mine, kv_role: 'both' }], 'connectors\\[0\\].kv_role` must be'],
    [
      'a policy',
      [{ ...mine, kv_load_failure_policy: 'fail' }],
      'kv_load_failure_policy` must be absent: it is set beside',
    ],
    ['keys', [{ ...mine, kv_transfer_key_file: 'x' }], 'connectors\\[0\\].kv_transfer_key_file` must be absent'],
    [
      'settings that are wrong',
      [{ kv_connector: 'SharedStorageConnector' }],
      'shared_storage_path` must be a directory',
    ],
  ])('with %s is refused', async (_, connectors, message) => {
    await expect(create(connectors)).rejects.toThrow(new RegExp(message));
  });

  it('with another setting is refused', async () => {
    await expect(create([mine], {}, { order: 1 })).rejects.toThrow(/kv_connector_extra_config.order` must be absent/);
  });

  it.each<[string, JsonObject, JsonObject]>([
    ['twice', shared(), shared()],
    ['by two paths', shared(), shared(`${relative(process.cwd(), path)}/`)],
    ['as a tier', shared(), offloading('host:8MiB', `disk:${path}:1GiB`)],
    ['in a list', shared(), { kv_connector: 'MultiConnector', kv_connector_extra_config: { connectors: [shared()] } }],
    [
      'with faults',
      shared(path, {
        kv_connector_extra_config: { shared_storage_path: path, fault_injection: { rules: [{ fault: 'slow' }] } },
      }),
      shared(),
    ],
    ['in Redis', offloading('redis://u:secret@h:1/0?ttl=5'), offloading('host:8MiB', 'redis://h:1/0')],
    ['in S3', offloading('s3://b/p?endpoint=http://h:1'), offloading('s3://b/p?endpoint=http://h:1&region=x')],
  ])('with one store %s is refused, without a password in the message', async (_, first, second) => {
    const error = await create([first, mine, second]).catch((error: Error) => error.message);
    expect(error).toMatch(
      /connectors\[2\]` must be a connector with a store of its own, got the store of connectors\[0\]/,
    );
    expect(error).not.toContain('secret');
  });

  it('a connector has no other role than its list, unless that has both', async () => {
    await create([
      { ...mine, kv_role: 'kv_producer' },
      { ...mine, kv_role: 'kv_consumer' },
    ]);
    await create([{ ...mine, kv_role: 'kv_consumer' }, mine], { kv_role: 'kv_consumer' });
    await expect(create([{ ...mine, kv_role: 'kv_both' }], { kv_role: 'kv_consumer' })).rejects.toThrow(
      /connectors\[0\].kv_role` must be `kv_consumer`, as that of the list, or absent, got "kv_both"/,
    );
  });

  it('all its connectors use the keys, or it is refused with the name of the first that does not', async () => {
    const more = { kv_transfer_key_file: keys };
    await create([shared(), offloading('host:8MiB')], more);
    await expect(create([shared(), mine], more)).rejects.toMatchObject({ code: 'KVASIR_CONNECTOR_IGNORES_KEYS' });
    await expect(create([shared(), mine], more)).rejects.toThrow(/`Mine`/);
    await expect(create([shared()], { kv_transfer_encrypt: true })).rejects.toThrow(/kv_transfer_key_file/);
  });

  it('the memory of its host tiers is counted together', () => {
    expect(hostTierBytes(configOf([offloading('host:8MiB'), mine, offloading('host:4MiB')]))).toBe(12 * 2 ** 20);
  });

  it('the name cannot be registered', () => {
    expect(() => registerConnector('MultiConnector', () => Promise.reject(new Error('not called')))).toThrow(
      /registered already/,
    );
  });
});

describe('opening a side of each connector', () => {
  const context = { clock: { nowMs: () => 0 }, timers: systemTimers, wake: () => undefined };
  const schedulerContext: SchedulerConnectorContext = { ...context, identities: [suiteIdentity] };
  const workerContext: WorkerConnectorContext = { ...context, identity: suiteIdentity };
  const closed: string[] = [];
  const failing: KvConnector = {
    checkSettings: () => Promise.reject(new Error('wrong password')),
    openScheduler: () => Promise.reject(new Error('no scheduler')),
    openWorker: () => Promise.reject(new Error('no worker')),
  };
  const fine = {
    openScheduler: async () => ({ close: async () => void closed.push('scheduler') }),
    openWorker: async () => ({ shutdown: async () => void closed.push('worker') }),
  } as unknown as KvConnector;

  it('fails with the error of one, and closes the others', async () => {
    const list = new MultiConnector([fine, failing, fine]);
    await expect(list.openScheduler(schedulerContext)).rejects.toThrow('no scheduler');
    await expect(list.openWorker(workerContext)).rejects.toThrow('no worker');
    expect(closed).toEqual(['scheduler', 'scheduler', 'worker', 'worker']);
  });

  it('the settings of all are checked before', async () => {
    await expect(new MultiConnector([fine, failing]).checkSettings()).rejects.toThrow('wrong password');
    await new MultiConnector([fine, fine]).checkSettings();
  });
});
