/** A tier class of the user's below host memory: the example obeys the contract of a tier, and the engine uses it. */
import { mkdtempSync, readdirSync, rmSync } from 'node:fs';
import { readFile, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import { FolderTier } from '../examples/folder-tier.ts';
import type { JsonObject } from '../src/base/json.ts';
import type { BlockKey } from '../src/connector/block-key.ts';
import { suiteIdentity, tierSuite } from '../src/connector/tier/tier.suite.ts';
import type { TamperableTier } from '../src/connector/tier/tier.ts';
import { tierCipherSuite } from '../src/connector/tier/tier-cipher.suite.ts';
import { tierMacSuite } from '../src/connector/tier/tier-mac.suite.ts';
import type { RequestStats } from '../src/core/request.ts';
import type { AsyncEngine } from '../src/engine/contract.ts';
import { promptOf } from './support/drive.ts';
import { openEngineWithTier } from './support/engine-with-tier.ts';

const root = mkdtempSync(join(tmpdir(), 'kvasir-own-tier-'));
afterAll(() => rmSync(root, { recursive: true, force: true }));
let serial = 0;
const newFolder = (): string => join(root, `${serial++}`);

const tamperable = (tier: FolderTier): TamperableTier =>
  Object.assign(tier, {
    tamper: async (key: BlockKey, corrupt: (stored: Uint8Array) => Uint8Array) => {
      await writeFile(tier.fileOf(key), corrupt(await readFile(tier.fileOf(key))));
      return true;
    },
  });

tierSuite(
  'FolderTier of the examples',
  async () => {
    const folder = newFolder();
    const open = async (identity: typeof suiteIdentity) =>
      tamperable(await FolderTier.open({ folder }, { name: 'FolderTier', identity, movesBlocks: true }));
    return { tier: await open(suiteIdentity), reopen: open };
  },
  { isBounded: false },
);

tierMacSuite('FolderTier of the examples', async () => {
  const folder = newFolder();
  const context = { name: 'FolderTier', identity: suiteIdentity, movesBlocks: true };
  return { open: async (macKeys) => tamperable(await FolderTier.open({ folder }, { ...context, macKeys })) };
});

tierCipherSuite('FolderTier of the examples', async () => {
  const folder = newFolder();
  const context = { name: 'FolderTier', identity: suiteIdentity, movesBlocks: true };
  return {
    open: async (macKeys, encrypts) => tamperable(await FolderTier.open({ folder }, { ...context, macKeys, encrypts })),
  };
});

const modulePath = 'dist/examples/folder-tier.js';

const openEngine = (tier: JsonObject): Promise<AsyncEngine> => openEngineWithTier({ tier });

async function ask(engine: AsyncEngine) {
  const tokens: number[] = [];
  let stats: RequestStats | undefined;
  const params = { maxTokens: 8, temperature: 0, ignoreEos: true };
  for await (const delta of engine.generate({ prompt: [...promptOf(200, 1, 250)], params })) {
    tokens.push(...delta.tokenIds);
    stats = delta.stats;
  }
  return { tokens, loaded: stats?.loadedTokens };
}

describe('OffloadingConnector with a tier class of the user’s', () => {
  it('stores in the tier, and another engine loads from it', async () => {
    const folder = newFolder();
    const tier = { type: 'FolderTier', module_path: modulePath, folder };
    const first = await openEngine(tier);
    const { tokens, loaded } = await ask(first);
    expect(loaded).toBeUndefined();
    const files = () => readdirSync(folder, { recursive: true }).filter((name) => !`${name}`.endsWith('.tmp'));
    // The folder of the identity, and twelve blocks of the prompt.
    await expect.poll(() => files().length).toBeGreaterThanOrEqual(13);
    await first.close();
    const second = await openEngine(tier);
    expect(await ask(second)).toEqual({ tokens, loaded: { FolderTier: 192 } });
    expect(second.stats().transfers.counters).toMatchObject({ 'tier.FolderTier.loadedBlocks': 12 });
    await second.close();
  });

  it('the locality is for the limits of a request', async () => {
    const folder = newFolder();
    const first = await openEngine({ type: 'FolderTier', module_path: modulePath, folder });
    await ask(first);
    await expect.poll(() => readdirSync(folder, { recursive: true }).length).toBeGreaterThanOrEqual(13);
    await first.close();
    const second = await openEngine({ type: 'FolderTier', module_path: modulePath, folder, locality: 'REMOTE' });
    const local = { kv_load_tiers: [{ medium: 'STORAGE', locality: 'LOCAL' }] };
    for await (const { stats } of second.generate({
      prompt: [...promptOf(200, 1, 250)],
      params: { maxTokens: 1 },
      kvTransferParams: local,
    }))
      expect(stats.loadedTokens).toBeUndefined();
    await second.close();
  });

  it('a wrong setting is an error at the start', async () => {
    await expect(openEngine({ type: 'FolderTier', module_path: modulePath })).rejects.toThrow(
      /`open` failed with "the setting `folder` must be a directory"/,
    );
  });
});
