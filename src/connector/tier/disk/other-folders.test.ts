import {
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  rmSync,
  symlinkSync,
  utimesSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import type { KvIdentity } from '../../connector.ts';
import { storedBlockBytes, suiteBytes, suiteIdentity, suiteKey } from '../tier.suite.ts';
import { boundOthers, countOthers, describeOthers } from './other-folders.ts';
import { DiskTier } from './tier-disk.ts';

const base = mkdtempSync(join(tmpdir(), 'kvasir-others-'));
afterAll(() => rmSync(base, { recursive: true }));
let serial = 0;
const newRoot = (): string => join(base, `${serial++}`);
const signal = new AbortController().signal;
const open = (root: string, change: Partial<KvIdentity> = {}, othersMaxBytes?: number) =>
  DiskTier.open({
    root,
    identity: { ...suiteIdentity, ...change },
    maxBytes: 1e9,
    ...(othersMaxBytes === undefined ? {} : { othersMaxBytes }),
  });
const blocksIn = (folder: string): string[] =>
  existsSync(folder)
    ? readdirSync(folder, { recursive: true })
        .map(String)
        .filter((name) => name.endsWith('.kv'))
    : [];

/** A store of another identity with `count` blocks, written one second apart. */
async function fill(root: string, change: Partial<KvIdentity>, count: number, writtenSeconds: number): Promise<string> {
  const tier = await open(root, change);
  for (let n = 0; n < count; n++) {
    await tier.store(suiteKey(n), suiteBytes(suiteKey(n)), signal);
    utimesSync(tier.fileOf(suiteKey(n)), writtenSeconds + n, writtenSeconds + n);
  }
  utimesSync(join(tier.path, 'config.json'), writtenSeconds, writtenSeconds);
  await tier.close();
  return tier.path;
}

const now = 1_800_000_000;
const bound = (root: string, blocks: number, nowSeconds = now) =>
  boundOthers(root, suiteIdentity, { maxBytes: blocks * storedBlockBytes, nowMs: nowSeconds * 1000 });

describe('blocks that an engine cannot use', () => {
  it('are those of other fingerprints, layouts and numbers of ranks, not those of its own ranks', async () => {
    const root = newRoot();
    const twoRanks = { ...suiteIdentity, worldSize: 2 };
    await fill(root, { worldSize: 2 }, 3, now);
    await fill(root, { worldSize: 2, rank: 1 }, 3, now);
    expect((await countOthers(root, twoRanks)).blocks).toBe(0);
    await fill(root, {}, 1, now);
    await fill(root, { fingerprint: 'another', modelName: 'Other' }, 2, now);
    await fill(root, { dtype: 'q8_0' }, 1, now);
    const found = await countOthers(root, twoRanks);
    expect(found).toMatchObject({ folders: 3, blocks: 4, bytes: 4 * storedBlockBytes });
    expect(describeOthers(root, found, 1024 ** 3)).toMatch(/4 blocks .* in 3 folders .*Other.*Above 1\.00 GiB/);
    expect(describeOthers(root, await countOthers(newRoot(), twoRanks), 1)).toBeUndefined();
  });

  it('are removed from the least recently used folder first, the oldest block first', async () => {
    const root = newRoot();
    const recent = await fill(root, { fingerprint: 'recent' }, 4, now - 10);
    const old = await fill(root, { fingerprint: 'old' }, 4, now - 1000);
    const ours = await fill(root, {}, 4, now - 5000);
    expect(await bound(root, 6)).toMatchObject({ removed: 2, blocks: 6, folders: 2 });
    expect(blocksIn(recent)).toHaveLength(4);
    const tier = await open(root, { fingerprint: 'old' });
    expect(
      await tier.has(
        [0, 1, 2, 3].map((n) => suiteKey(n)),
        signal,
      ),
    ).toEqual([false, false, true, true]);
    await tier.close();
    expect(await bound(root, 0)).toMatchObject({ removed: 6, blocks: 0, bytes: 0, folders: 0 });
    expect(blocksIn(old)).toEqual([]);
    expect(blocksIn(ours)).toHaveLength(4);
  });

  it('are removed with their folder when it was empty for a day', async () => {
    const root = newRoot();
    const old = await fill(root, { fingerprint: 'old' }, 2, now - 1000);
    await bound(root, 0);
    expect(existsSync(old)).toBe(true);
    await bound(root, 0, now + 2 * 24 * 3600);
    expect(existsSync(dirname(old))).toBe(false);
  });

  it('can be stored again by an engine that uses the folder', async () => {
    const root = newRoot();
    const theirs = await open(root, { fingerprint: 'theirs' });
    await theirs.store(suiteKey(0), suiteBytes(suiteKey(0)), signal);
    await boundOthers(root, suiteIdentity, { maxBytes: 0, nowMs: Date.now() + 1e9 });
    expect(existsSync(theirs.path)).toBe(false);
    expect(await theirs.load(suiteKey(0), new Uint8Array(suiteIdentity.blockBytes), signal)).toBe('missing');
    expect(await theirs.store(suiteKey(0), suiteBytes(suiteKey(0)), signal)).toBe('stored');
  });

  it('are counted with quarantined files; files and folders with other names are never removed', async () => {
    const root = newRoot();
    const other = await fill(root, { fingerprint: 'other' }, 1, now - 1000);
    mkdirSync(join(other, 'quarantine'));
    writeFileSync(join(other, 'quarantine', 'x.kv.corrupt'), 'corrupt');
    const foreign = join(root, 'someone', 'rank0of1', '00');
    mkdirSync(foreign, { recursive: true });
    writeFileSync(join(foreign, 'letter.txt'), 'dear');
    writeFileSync(join(other, 'notes.txt'), 'mine');
    const linked = newRoot();
    const outside = await fill(linked, { fingerprint: 'outside' }, 1, now - 1000);
    symlinkSync(dirname(outside), join(root, `kv-${'0'.repeat(32)}`));
    expect(await countOthers(root, suiteIdentity)).toMatchObject({ blocks: 2 });
    await bound(root, 0, now + 1e9);
    expect(readdirSync(other)).toEqual(expect.arrayContaining(['notes.txt']));
    expect(existsSync(join(foreign, 'letter.txt'))).toBe(true);
    expect(blocksIn(outside)).toHaveLength(1);
  });

  it('are bounded and counted by the tier of rank 0 when it stores', async () => {
    const root = newRoot();
    const other = await fill(root, { fingerprint: 'other' }, 5, now);
    for (const [rank, left] of [
      [1, 5],
      [0, 2],
    ] as const) {
      const tier = await open(root, { worldSize: 2, rank }, 2 * storedBlockBytes);
      await tier.store(suiteKey(0), suiteBytes(suiteKey(0)), signal);
      await tier.othersBounded;
      expect(blocksIn(other)).toHaveLength(left);
      if (rank === 0)
        expect({ ...tier.counters(), ...tier.levels() }).toMatchObject({
          otherFolders: 1,
          otherBlocks: 2,
          othersEvicted: 3,
        });
      await tier.close();
    }
  });
});
