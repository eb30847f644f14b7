import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import type { JsonObject } from '../../base/json.ts';
import { readKvTransferConfig } from '../config.ts';
import { suiteBytes, suiteIdentity, suiteKey } from '../tier/tier.suite.ts';
import { readOffloadingSettings } from './offloading-settings.ts';
import { kindOf, openTier } from './open-tier.ts';
import { storesAtOnce } from './rank-share.ts';

const folder = mkdtempSync(join(tmpdir(), 'kvasir-own-'));
afterAll(() => rmSync(folder, { recursive: true }));
const never = new AbortController().signal;

const specOf = (tier: JsonObject) =>
  readOffloadingSettings(
    readKvTransferConfig({
      kvConnector: 'OffloadingConnector',
      kvRole: 'kv_both',
      kvConnectorExtraConfig: {
        spec_name: 'TieringOffloadingSpec',
        cpu_bytes_to_use: 1e8,
        secondary_tiers: [tier],
      },
    }),
  ).secondaries[0]!;
const open = (tier: JsonObject) => openTier(specOf(tier), { identity: suiteIdentity, movesBlocks: true });

const wrong = 'dist/test/support/wrong-tiers.js';

describe('a tier class of the user’s', () => {
  it('is opened with its settings and a context, and has the name of the class', async () => {
    const given = specOf({ type: 'Remembering', module_path: wrong, folder, deep: { a: [1] } });
    expect(given).toEqual({
      name: 'Remembering',
      spec: {
        kind: 'own',
        className: 'Remembering',
        modulePath: wrong,
        locality: 'LOCAL',
        settings: { folder, deep: { a: [1] } },
      },
    });
    expect(kindOf(given.spec)).toEqual({ medium: 'STORAGE', locality: 'LOCAL' });
    expect(kindOf({ ...given.spec, locality: 'REMOTE' } as typeof given.spec)).toEqual({
      medium: 'STORAGE',
      locality: 'REMOTE',
    });
    expect(storesAtOnce(given.spec, suiteIdentity)).toBeGreaterThan(1);
    const tier = await openTier(given, { identity: suiteIdentity, movesBlocks: true });
    expect(tier.name).toBe('Remembering');
    expect(await tier.store(suiteKey(1), suiteBytes(suiteKey(1)), never)).toBe('stored');
    expect(await tier.has([suiteKey(1)], never)).toEqual([true]);
    expect(tier.counters()).toEqual({ settings: 2, movesBlocks: 1 });
  });

  it.each<[JsonObject, RegExp]>([
    [{ type: 'Half', module_path: 'nowhere.js' }, /`Half` from the module `nowhere.js` .* cannot be imported/],
    [{ type: 'Halff', module_path: wrong }, /has no such export\. Did you mean `Half`\? It exports /],
    [{ type: 'Throwing', module_path: wrong }, /`open` failed with "no folder"/],
    [{ type: 'number', module_path: wrong }, /has no static method `open`/],
    [{ type: 'Nothing', module_path: wrong }, /`open` returned no tier/],
    [{ type: 'Nameless', module_path: wrong }, /has the name "x" and not "Nameless"/],
    [{ type: 'Half', module_path: wrong }, /has no method load, store, delete, takeEvicted, counters, close/],
  ])('%j is an error when the tier is opened', async (tier, message) => {
    await expect(open(tier)).rejects.toThrow(message);
  });

  it('keeps its own error, if that is one of Kvasir’s', async () => {
    await expect(open({ type: 'Closed', module_path: wrong })).rejects.toMatchObject({ code: 'KVASIR_TIER_CLOSED' });
  });

  it.each<[JsonObject, RegExp]>([
    [{ type: 'redis', module_path: wrong }, /\.type` must be the name of a class/],
    [{ type: 'a-b', module_path: wrong }, /\.type` must be the name of a class/],
    [{ module_path: wrong }, /\.type` must be the name of a class/],
    [{ type: 'Half', module_path: wrong, locality: 'HERE' }, /\.locality` must be "LOCAL" or "REMOTE"/],
  ])('%j is an error of the settings', (tier, message) => {
    expect(() => specOf(tier)).toThrow(message);
  });
});
