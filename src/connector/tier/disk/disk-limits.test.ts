/** A disk tier at its limits: the bound of its bytes, a full disk, a read-only disk, a disk without `O_DIRECT`. */
import { spawnSync } from 'node:child_process';
import { mkdtempSync, readdirSync, readFileSync, renameSync, rmSync, statSync } from 'node:fs';
import { constants, getPriority, tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import { needs } from '../../../../test/support/needs.ts';
import { canMount, makeReadOnly, withoutDirectIo, withSmallDisk } from '../../../../test/support/small-disk.ts';
import { until } from '../../../../test/support/until.ts';
import { Prng } from '../../../base/prng.ts';
import type { BlockKey } from '../../block-key.ts';
import { type SaltTag, saltTagOf } from '../../salt-tag.ts';
import { storedBlockBytes, suiteBlockBytes, suiteBytes, suiteIdentity, suiteKey } from '../tier.suite.ts';
import { DiskTier, type DiskTierOptions } from './tier-disk.ts';

/** Of threads that write. */
const low = constants.priority.PRIORITY_BELOW_NORMAL;
const root = mkdtempSync(join(tmpdir(), 'kvasir-limits-'));
afterAll(() => rmSync(root, { recursive: true }));
let serial = 0;
const newRoot = (): string => join(root, `${serial++}`);
const open = (options: Partial<DiskTierOptions> = {}) =>
  DiskTier.open({ root: newRoot(), identity: suiteIdentity, maxBytes: 1e9, ...options });
const never = new AbortController().signal;
const minuteMs = 60_000;
const noMount = 'no right to mount a file system';
const put = (tier: DiskTier, name: string | number) => tier.store(suiteKey(name), suiteBytes(suiteKey(name)), never);
const get = (tier: DiskTier, name: string | number) =>
  tier.load(suiteKey(name), new Uint8Array(suiteBlockBytes), never);
const isStored = async (tier: DiskTier, names: readonly number[]) =>
  tier.has(
    names.map((name) => suiteKey(name)),
    never,
  );

/** The bytes of all blocks and temporary files. */
function bytesBelow(folder: string): number {
  let bytes = 0;
  for (const name of readdirSync(folder, { recursive: true, encoding: 'utf8' })) {
    if (!/\.(kv|tmp)$/.test(name)) continue;
    bytes += statSync(join(folder, name), { throwIfNoEntry: false })?.size ?? 0;
  }
  return bytes;
}

describe('the threads of a disk tier', () => {
  // The first test of this file, because threads of closed tiers stay for the next one.
  it(
    'that write have a low priority, and no others',
    needs(process.platform === 'linux' && getPriority() < low, 'no priorities of threads, or a low one already'),
    async () => {
      const lowCount = (): number => nicesOfThreads().filter((nice) => nice === low).length;
      const tier = await open({ threads: 2, startThreads: 2, backgroundWriters: 1 });
      expect(await get(tier, 1)).toBe('missing');
      expect(lowCount()).toBe(0);
      await put(tier, 1);
      expect(await get(tier, 1)).toBeUndefined();
      expect(lowCount()).toBe(1);
      await tier.close();
    },
  );
});

describe('a quota for each cache salt', () => {
  const [a, b] = [saltTagOf('a')!, saltTagOf('b')!];
  const putOf = async (tier: DiskTier, saltTag: SaltTag | undefined, ...names: number[]) => {
    for (const name of names)
      expect(await tier.store(suiteKey(name), suiteBytes(suiteKey(name)), never, { saltTag })).toBe('stored');
  };
  const countOf = async (tier: DiskTier, ...names: number[]) =>
    (await isStored(tier, names)).filter((answer) => answer === true).length;
  const quotaOf = (blocks: number) => ({ quotaBytes: blocks * storedBlockBytes, reportsSalts: true });
  const levelsOf = (blocks: number) => ({ blocks, bytes: blocks * storedBlockBytes });

  it('evicts blocks of the same salt, also after a restart, and none of others', async () => {
    const at = newRoot();
    const first = await open({ root: at, ...quotaOf(3) });
    await putOf(first, a, 1, 2, 3);
    await putOf(first, b, 11, 12);
    await putOf(first, undefined, 21, 22, 23, 24);
    expect(await get(first, 1)).toBeUndefined();
    await putOf(first, a, 4, 5);
    expect(await isStored(first, [1, 2, 3, 4, 5])).toEqual([true, false, false, true, true]);
    expect(first.takeEvicted()).toEqual([suiteKey(2), suiteKey(3)]);
    expect(first.saltLevels()).toEqual({ [a]: levelsOf(3), [b]: levelsOf(2) });
    await first.close();

    const again = await open({ root: at, ...quotaOf(3) });
    await putOf(again, a, 6);
    expect(await countOf(again, 1, 4, 5)).toBe(2);
    expect(await countOf(again, 6, 11, 12, 21, 22, 23, 24)).toBe(7);
    expect(again.saltLevels()).toEqual({ [a]: levelsOf(3), [b]: levelsOf(2) });
    await again.close();

    const smaller = await open({ root: at, ...quotaOf(1) });
    await putOf(smaller, undefined, 25);
    expect(smaller.saltLevels()).toEqual({ [a]: levelsOf(1), [b]: levelsOf(1) });
    expect([await countOf(smaller, 1, 4, 5, 6), await countOf(smaller, 11, 12)]).toEqual([1, 1]);
    expect(await countOf(smaller, 21, 22, 23, 24, 25)).toBe(5);
    expect(smaller.counters().evicted).toBe(3);
    await smaller.close();
  });

  it('holds for the blocks of several processes together when the folder is read again', async () => {
    const at = newRoot();
    const options = { root: at, maxBytes: 16 * storedBlockBytes, ...quotaOf(3) };
    const [first, second] = [await open(options), await open(options)];
    await putOf(first, undefined, 21);
    await putOf(second, undefined, 22);
    await putOf(first, a, 1, 2);
    await putOf(second, a, 4, 5);
    expect(await countOf(first, 1, 2, 4, 5)).toBe(4);
    await putOf(first, undefined, 23);
    // After an eighth of its bytes was stored.
    await putOf(first, undefined, 24);
    expect(await countOf(first, 1, 2, 4, 5)).toBe(3);
    // Loads tell the salts of blocks, too.
    await putOf(second, a, 6);
    expect(await first.load(suiteKey(6), new Uint8Array(suiteBlockBytes), never, { saltTag: a })).toBeUndefined();
    expect(first.saltLevels()).toEqual({ [a]: levelsOf(4) });
    await putOf(first, a, 7);
    expect(first.saltLevels()).toEqual({ [a]: levelsOf(3) });
    await Promise.all([first.close(), second.close()]);
  });

  it('has no block that is larger than it', async () => {
    const tier = await open({ quotaBytes: storedBlockBytes - 1 });
    const store = (saltTag?: SaltTag) => tier.store(suiteKey(1), suiteBytes(suiteKey(1)), never, { saltTag });
    expect([await store(a), await store()]).toEqual(['full', 'stored']);
    await tier.close();
  });
});

describe('a disk tier at its bound', () => {
  it('never has more bytes on the disk, with temporary files, during many stores at once', async () => {
    const maxBytes = 10.5 * storedBlockBytes;
    const tier = await open({ maxBytes, threads: 4 });
    const answers = new Map<string, number>();
    let openCount = 200;
    const storing = Array.from({ length: openCount }, async (_, name) => {
      const answer = await put(tier, name);
      answers.set(answer, (answers.get(answer) ?? 0) + 1);
      openCount--;
    });
    while (openCount > 0) {
      expect(bytesBelow(tier.path)).toBeLessThanOrEqual(maxBytes);
      await new Promise((resolve) => setImmediate(resolve));
    }
    await Promise.all(storing);
    // While ten blocks are being written, further blocks find no block that could be removed.
    expect(new Set(answers.keys())).toEqual(new Set(['full', 'stored']));
    expect(answers.get('stored')).toBeGreaterThanOrEqual(10);
    expect(bytesBelow(tier.path)).toBe(10 * storedBlockBytes);
    expect(tier.levels()).toMatchObject({ blocks: 10, bytes: 10 * storedBlockBytes });
    await tier.close();
  });

  it('has the blocks of its levels after random stores, loads and deletes at once', async () => {
    const prng = new Prng(7);
    const maxBytes = 8 * storedBlockBytes;
    const tier = await open({ maxBytes, threads: 3 });
    for (let round = 0; round < 20; round++) {
      const calls = Array.from({ length: 12 }, async () => {
        const name = prng.between(0, 20);
        const what = prng.unit();
        if (what < 0.6) await put(tier, name);
        else if (what < 0.9) await get(tier, name);
        else await tier.delete(suiteKey(name));
      });
      await Promise.all(calls);
      expect(bytesBelow(tier.path), `round ${round}`).toBeLessThanOrEqual(maxBytes);
      expect(tier.levels().bytes).toBeGreaterThanOrEqual(bytesBelow(tier.path));
    }
    await tier.close();
  });

  it('with background writers stores blocks while all its reading threads hang', async () => {
    const tier = await open({ threads: 2, backgroundWriters: 1, maxBytes: 5 * storedBlockBytes });
    for (const name of [0, 1]) await put(tier, name);
    const [first, second] = [0, 1].map((name) => tier.fileOf(suiteKey(name))) as [string, string];
    for (const path of [first, second]) {
      renameSync(path, `${path}.kept`);
      expect(spawnSync('mkfifo', [path]).status).toBe(0);
    }
    const controller = new AbortController();
    const loads = [0, 1].map((name) =>
      tier.load(suiteKey(name), new Uint8Array(suiteBlockBytes), controller.signal).catch(() => 'aborted'),
    );
    await until(() => tier.busyCount >= 2);
    for (let name = 10; name < 30; name++) expect(await put(tier, name)).toBe('stored');
    expect(tier.busyCount).toBe(2);
    controller.abort();
    expect(await Promise.all(loads)).toEqual(['aborted', 'aborted']);
    for (const path of [first, second]) spawnSync('sh', ['-c', ': <> "$0"', path]);
    await tier.close();
  });
});

describe('the order of blocks', () => {
  it('is that of their last use after a restart', async () => {
    const at = newRoot();
    // Later than the dates of new files.
    let nowMs = Date.now() + 10 * minuteMs;
    const first = await open({ root: at, wallNowMs: () => nowMs });
    for (const name of [1, 2, 3, 4]) await put(first, name);
    for (const name of [3, 1]) {
      nowMs += minuteMs;
      expect(await get(first, name)).toBeUndefined();
    }
    await first.close();
    const second = await open({ root: at, maxBytes: 4 * storedBlockBytes, wallNowMs: () => nowMs });
    // 2 and 4 were never loaded. Of those, either may be the older one: their dates may be equal.
    for (const name of [5, 6]) await put(second, name);
    expect(await isStored(second, [1, 2, 3, 4])).toEqual([true, false, true, false]);
    await put(second, 7);
    expect(await isStored(second, [1, 3, 5, 6, 7])).toEqual([true, false, true, true, true]);
    await second.close();
  });
});

describe('a read-only disk', needs(canMount, noMount), () => {
  it('gives its blocks', async () => {
    await withSmallDisk(1e6, async (folder) => {
      const writer = await open({ root: folder });
      await put(writer, 1);
      await writer.close();
      const reader = await open({ root: folder, wallNowMs: () => Date.now() + minuteMs * 10 });
      makeReadOnly(folder);
      expect(await get(reader, 1)).toBeUndefined();
      expect(reader.counters()).toEqual({ loaded: 1 });
      await reader.close();
    });
  });
});

describe('a full disk', needs(canMount, noMount), () => {
  it('keeps as many blocks as it has room for, and the newest', async () => {
    // Room for about 30 blocks and their folders; the tier would keep more.
    await withSmallDisk(60 * 4096 * 2, async (folder) => {
      const tier = await open({ root: folder, threads: 1 });
      const keys: BlockKey[] = [];
      for (let name = 0; name < 150; name++) {
        const answer = await put(tier, name);
        if (answer === 'stored') keys.push(suiteKey(name));
        else expect(answer).toBe('full');
      }
      expect(tier.counters().diskFull).toBeGreaterThan(0);
      expect(tier.counters().evicted).toBeGreaterThan(0);
      expect(keys.at(-1)).toBe(suiteKey(149));
      const found = await tier.has(keys, never);
      const kept = keys.filter((_, i) => found[i] === true);
      expect(kept.length).toBeGreaterThanOrEqual(10);
      expect(kept).toEqual(keys.slice(-kept.length));
      for (const key of kept) {
        const into = new Uint8Array(suiteBlockBytes);
        expect(await tier.load(key, into, never)).toBeUndefined();
        expect(into).toEqual(suiteBytes(key));
      }
      expect(readdirSync(tier.path, { recursive: true, encoding: 'utf8' }).filter((n) => n.endsWith('.tmp'))).toEqual(
        [],
      );
      await tier.close();
    });
  });

  it('with other programs’ files only answers `full`, and rejects nothing', async () => {
    await withSmallDisk(40_000, async (folder) => {
      const tier = await open({ root: folder });
      spawnSync('sh', ['-c', 'cat /dev/zero > "$0/other" 2> /dev/null', folder]);
      for (let name = 0; name < 5; name++) expect(await put(tier, name)).toBe('full');
      expect(tier.levels()).toMatchObject({ blocks: 0, bytes: 0 });
      rmSync(join(folder, 'other'));
      expect(await put(tier, 1)).toBe('stored');
      await tier.close();
    });
  });
});

describe('direct_io', () => {
  it('is not used on a file system that refuses it, with one event', needs(canMount, noMount), async () => {
    await withoutDirectIo(async (folder) => {
      const tier = await open({ root: folder, directIo: true });
      expect(tier.events.join()).toMatch(/direct_io is not possible here \(EINVAL\)/);
      expect(tier.events).toHaveLength(1);
      for (const name of [1, 2]) expect(await put(tier, name)).toBe('stored');
      for (const name of [1, 2]) expect(await get(tier, name)).toBeUndefined();
      await tier.close();
    });
  });
});

/** The nice values of all threads of this process. */
const nicesOfThreads = (): number[] =>
  readdirSync('/proc/self/task').flatMap((id) => {
    try {
      const stat = readFileSync(`/proc/self/task/${id}/stat`, 'utf8');
      return [Number(stat.slice(stat.lastIndexOf(')') + 2).split(' ')[16])];
    } catch {
      // The thread has ended.
      return [];
    }
  });
