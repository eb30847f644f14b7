import { spawnSync } from 'node:child_process';
import {
  existsSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  symlinkSync,
  utimesSync,
  writeFileSync,
} from 'node:fs';
import { hostname, tmpdir } from 'node:os';
import { basename, dirname, join } from 'node:path';
import { afterAll, describe, expect, it, vi } from 'vitest';
import { isLongForm } from '../../../../test/support/long-form.ts';
import { needs } from '../../../../test/support/needs.ts';
import type { KvIdentity } from '../../connector.ts';
import { storedBlockBytes, suiteBlockBytes, suiteBytes, suiteIdentity, suiteKey, tierSuite } from '../tier.suite.ts';
import { tierCipherSuite } from '../tier-cipher.suite.ts';
import { tierMacSuite } from '../tier-mac.suite.ts';
import { DiskFolder } from './disk-folder.ts';
import { DiskTier } from './tier-disk.ts';

const root = mkdtempSync(join(tmpdir(), 'kvasir-tier-'));
afterAll(() => rmSync(root, { recursive: true }));
let serial = 0;
const newRoot = (): string => join(root, `${serial++}`);
const open = (at: string, identity: KvIdentity = suiteIdentity, blocks = 100) =>
  DiskTier.open({ root: at, identity, maxBytes: blocks * storedBlockBytes });
const signal = new AbortController().signal;
const put = (tier: DiskTier, name: string | number) => tier.store(suiteKey(name), suiteBytes(suiteKey(name)), signal);
const block = (): Uint8Array => new Uint8Array(suiteBlockBytes);

tierSuite('DiskTier', async (maxBytes) => {
  const at = newRoot();
  return {
    tier: await DiskTier.open({ root: at, identity: suiteIdentity, maxBytes }),
    reopen: (identity) => open(at, identity),
  };
});
if (isLongForm)
  tierSuite('DiskTier with fsync', async (maxBytes) => {
    const at = newRoot();
    return {
      tier: await DiskTier.open({ root: at, identity: suiteIdentity, maxBytes, fsync: true }),
      reopen: (identity) => open(at, identity),
    };
  });
tierSuite('DiskTier with direct_io', async (maxBytes) => {
  const at = newRoot();
  return {
    tier: await DiskTier.open({ root: at, identity: suiteIdentity, maxBytes, directIo: true }),
    reopen: (identity) => open(at, identity),
  };
});
for (const directIo of [false, true]) {
  tierMacSuite(`DiskTier ${directIo ? 'with' : 'without'} direct_io`, async () => {
    const options = { root: newRoot(), identity: suiteIdentity, maxBytes: 1e9, directIo };
    return { open: (macKeys) => DiskTier.open({ ...options, macKeys }) };
  });
  tierCipherSuite(`DiskTier ${directIo ? 'with' : 'without'} direct_io`, async () => {
    const options = { root: newRoot(), identity: suiteIdentity, maxBytes: 1e9, directIo };
    return { open: (macKeys, encrypts) => DiskTier.open({ ...options, macKeys, encrypts }) };
  });
}

describe('a folder of blocks', () => {
  it('is found by a later tier, and its record has the identity in clear text', async () => {
    const at = newRoot();
    const first = await open(at);
    await put(first, 'a');
    await first.close();
    const second = await open(at);
    const into = block();
    expect(await second.load(suiteKey('a'), into, signal)).toBeUndefined();
    expect(into).toEqual(suiteBytes(suiteKey('a')));
    expect(second.events).toEqual([]);
    const [model] = readdirSync(at);
    expect(model).toMatch(/^kv-[0-9a-f]{32}$/);
    const record = JSON.parse(readFileSync(join(second.path, 'config.json'), 'utf8'));
    expect(record).toMatchObject({ model: 'Tiny/Model 1.0', dtype: 'f16', worldSize: 1, blockBytes: suiteBlockBytes });
    await second.close();
  });

  it.each<[string, string, Partial<KvIdentity>]>([
    ['wrongModel', 'fingerprint', { fingerprint: 'another' }],
    ['wrongDtype', 'dtype', { dtype: 'q8_0' }],
    ['wrongBlockSize', 'groups', { groups: suiteIdentity.groups.map((g) => ({ ...g, blockSize: 32 })) }],
    ['wrongLayers', 'groups', { groups: suiteIdentity.groups.map((g) => ({ ...g, layers: [4, 5] })) }],
    ['wrongRank', 'rank', { rank: 1, worldSize: 2 }],
  ])('of another identity under the name of this one has only misses: %s', async (reason, field, other) => {
    const at = newRoot();
    const theirs = await open(at, { ...suiteIdentity, ...other });
    await put(theirs, 'a');
    const ours = (await open(newRoot())).path;
    rmSync(ours, { recursive: true });
    renameSync(theirs.path, ours);
    const tier = await open(dirname(dirname(ours)));
    expect(tier.path).toBe(ours);
    expect(tier.events.join()).toContain(`described another model or layout: ${field}`);
    expect(await tier.has([suiteKey('a')], signal)).toEqual([true]);
    expect(await tier.load(suiteKey('a'), block(), signal)).toBe(reason);
    expect(readdirSync(join(ours, 'quarantine'))[0]).toMatch(new RegExp(`-g0\\.kv\\.${reason}$`));
  });

  it('with a time to live has no block that was not used for so long, also after a restart', async () => {
    const at = newRoot();
    let nowMs = Date.now();
    const again = () =>
      DiskTier.open({ root: at, identity: suiteIdentity, maxBytes: 1e9, ttlSeconds: 1000, wallNowMs: () => nowMs });
    const first = await again();
    const names = ['used', 'asked for', 'loaded', 'stored', 'left'];
    for (const name of names) await put(first, name);
    nowMs += 900_000;
    expect(await first.load(suiteKey('used'), block(), signal)).toBeUndefined();
    await first.close();
    nowMs += 200_000;
    const second = await again();
    expect(await second.has([suiteKey('used'), suiteKey('asked for')], signal)).toEqual([true, false]);
    expect(await second.load(suiteKey('loaded'), block(), signal)).toBe('missing');
    expect(existsSync(second.fileOf(suiteKey('loaded')))).toBe(false);
    expect(await put(second, 'used')).toBe('alreadyStored');
    // The scan before the first store has removed the others.
    expect(existsSync(second.fileOf(suiteKey('left')))).toBe(false);
    expect(await put(second, 'stored')).toBe('stored');
    expect(second.levels()).toMatchObject({ blocks: 2, bytes: 2 * storedBlockBytes });
    expect(second.counters().expired).toBe(3);
    nowMs += 2_000_000;
    expect(await put(second, 'used')).toBe('stored');
    await second.close();
  });

  it('with a time to live removes expired blocks without any call', async () => {
    const at = newRoot();
    const first = await open(at);
    await put(first, 'a');
    const wallNowMs = () => Date.now() + 20_000;
    const options = {
      root: at,
      identity: suiteIdentity,
      maxBytes: 1e9,
      ttlSeconds: 10,
      removesExpired: true,
      wallNowMs,
    };
    const second = await DiskTier.open(options);
    await vi.waitUntil(() => !existsSync(first.fileOf(suiteKey('a'))), { timeout: 60_000 });
    await Promise.all([first.close(), second.close()]);
  });

  it('does not depend on the served model name', async () => {
    const at = newRoot();
    await put(await open(at), 'a');
    const renamed = await open(at, { ...suiteIdentity, modelName: 'another name' });
    expect(await renamed.load(suiteKey('a'), block(), signal)).toBeUndefined();
    expect(renamed.events).toEqual([]);
  });

  it('reports other folders that do not match', async () => {
    const at = newRoot();
    await (await open(at, { ...suiteIdentity, dtype: 'q8_0', modelName: 'Other' })).close();
    const tier = await open(at);
    expect(tier.events.join()).toMatch(/kv-[0-9a-f]{32}.*does not match: dtype: "q8_0", ours "f16"/);
  });

  const mkfifo = (path: string): void => expect(spawnSync('mkfifo', [path]).status).toBe(0);
  const zeros = (path: string): void => symlinkSync('/dev/zero', path);
  const large = (path: string): void => writeFileSync(path, '['.repeat(2 * 1024 ** 2));
  it.each([
    ['its record and that of another engine are a FIFO', mkfifo, ['f16', 'q8_0']],
    ['its record and that of another engine are an endless device', zeros, ['f16', 'q8_0']],
    ['its record and that of another engine are too large', large, ['f16', 'q8_0']],
  ])('is opened with unreadable records: %s', async (_, make, dtypes) => {
    const at = newRoot();
    await (await open(at)).close();
    for (const dtype of dtypes) {
      const tier = await open(at, { ...suiteIdentity, dtype });
      await tier.close();
      rmSync(join(tier.path, 'config.json'));
      make(join(tier.path, 'config.json'));
    }
    const tier = await open(at);
    expect(JSON.parse(readFileSync(join(tier.path, 'config.json'), 'utf8'))).toMatchObject({ dtype: 'f16' });
    await tier.close();
  });

  it('with a block under the name of another block has a miss', async () => {
    const tier = await open(newRoot());
    await put(tier, 'a');
    await put(tier, 'b');
    renameSync(tier.fileOf(suiteKey('a')), tier.fileOf(suiteKey('b')));
    expect(await tier.load(suiteKey('b'), block(), signal)).toBe('wrongKey');
  });

  it('keeps at most 64 corrupt blocks in quarantine', async () => {
    const tier = await open(newRoot());
    for (let i = 0; i < 70; i++) {
      await put(tier, i);
      await tier.tamper(suiteKey(i), (stored) => stored.fill(1, 200));
      expect(await tier.load(suiteKey(i), block(), signal)).toBe('corrupt');
    }
    expect(readdirSync(join(tier.path, 'quarantine'))).toHaveLength(64);
  });

  it('is bounded together with the blocks of other processes', async () => {
    const at = newRoot();
    const [a, b] = [await open(at, suiteIdentity, 10), await open(at, suiteIdentity, 10)];
    for (let i = 0; i < 40; i++) await put(i % 2 === 0 ? a : b, i);
    const files = readdirSync(a.path, { recursive: true }).filter((name) => `${name}`.endsWith('.kv'));
    // Each tier reads the folder again after it stored an eighth of its bytes.
    expect(files.length).toBeLessThanOrEqual(13);
    for (const name of files) {
      const key = `0-${basename(`${name}`).slice(0, 64)}` as ReturnType<typeof suiteKey>;
      expect(await a.load(key, block(), signal)).toBeUndefined();
    }
  });

  it('can be used after another process emptied it', async () => {
    const tier = await open(newRoot());
    await put(tier, 'a');
    rmSync(dirname(tier.fileOf(suiteKey('a'))), { recursive: true });
    expect(await tier.load(suiteKey('a'), block(), signal)).toBe('missing');
    expect(await put(tier, 'a')).toBe('stored');
    expect(await tier.load(suiteKey('a'), block(), signal)).toBeUndefined();
  });

  it('removes temporary files of any writer that were not written for a day', async () => {
    const at = newRoot();
    const tier = await open(at);
    await put(tier, 'a');
    const folder = dirname(tier.fileOf(suiteKey('a')));
    const left = (path: string, ageHours: number): void => {
      writeFileSync(path, 'half a block');
      const seconds = Date.now() / 1000 - ageHours * 3600;
      utimesSync(path, seconds, seconds);
    };
    const host = hostname().replace(/[^A-Za-z0-9-]/g, '-');
    // Containers may share a host name and process id 1, so only the age shows that a file is abandoned.
    left(join(folder, `.x.kv.${host}.${process.pid}.abc.0.tmp`), 23);
    left(join(folder, '.x.kv.abc.0.tmp'), 23);
    left(join(folder, `.x.kv.${host}.${process.pid}.abc.1.tmp`), 25);
    left(join(folder, '.x.kv.abc.1.tmp'), 25);
    left(join(tier.path, '.config.json.abc.0.tmp'), 25);
    left(join(folder, 'notes.txt'), 25);
    await put(await open(at), 'b');
    const others = (path: string): string[] => readdirSync(path).filter((name) => /tmp$|txt$/.test(name));
    const kept = [`.x.kv.${host}.${process.pid}.abc.0.tmp`, '.x.kv.abc.0.tmp', 'notes.txt'];
    expect(new Set(others(folder))).toEqual(new Set(kept));
    expect(others(tier.path)).toEqual([]);
  });

  it('has unique temporary names without host name or process id', async () => {
    const at = newRoot();
    const folders = [1, 2].map(() => new DiskFolder(at, suiteIdentity));
    const names = folders.flatMap((folder) => [folder.newTemporaryName('/x/a.kv'), folder.newTemporaryName('/x/a.kv')]);
    expect(new Set(names).size).toBe(4);
    for (const name of names) expect(name).toMatch(/^\.a\.kv\.[0-9a-f]{24}\.\d+\.tmp$/);
  });

  it(
    'below /proc is an error at the start, not an endless loop',
    needs(existsSync('/proc/self'), 'no /proc'),
    async () => {
      await expect(open('/proc/nothing/kv')).rejects.toMatchObject({ code: 'KVASIR_STORAGE_UNUSABLE' });
    },
  );

  it('that cannot be created is an error at the start', async () => {
    const file = join(root, 'a-file');
    writeFileSync(file, '');
    await expect(open(file)).rejects.toMatchObject({ code: 'KVASIR_STORAGE_UNUSABLE' });
  });

  it('with one unreadable subfolder answers all other keys, counts the failures, and reports the reason once', async () => {
    const events: string[] = [];
    const at = newRoot();
    const options = {
      root: at,
      identity: suiteIdentity,
      maxBytes: 1e9,
      event: (text: string) => void events.push(text),
    };
    const tier = await DiskTier.open(options);
    const names = Array.from({ length: 40 }, (_, i) => i);
    for (const name of names) await put(tier, name);
    // A symbolic link to itself: ELOOP, also for root.
    const unreadable = dirname(tier.fileOf(suiteKey(7)));
    rmSync(unreadable, { recursive: true });
    symlinkSync(basename(unreadable), unreadable);
    const isUnreadable = (name: number): boolean => dirname(tier.fileOf(suiteKey(name))) === unreadable;
    for (let i = 0; i < 2; i++)
      expect(
        await tier.has(
          names.map((name) => suiteKey(name)),
          signal,
        ),
      ).toEqual(names.map((name) => (isUnreadable(name) ? undefined : true)));
    expect(events).toHaveLength(1);
    expect(events[0]).toContain(`${unreadable} cannot be read (ELOOP)`);
    expect(tier.counters()['lookupFailed.ELOOP']).toBe(2 * names.filter(isUnreadable).length);
    await tier.close();
  });

  it('on a disk that fails rejects stores and removes no block', async () => {
    const tier = await open(newRoot());
    await put(tier, 'a');
    const unreadable = await open(newRoot());
    rmSync(unreadable.path, { recursive: true });
    writeFileSync(unreadable.path, 'a file where the folder was');
    expect(await unreadable.load(suiteKey('a'), block(), signal)).toBe('missing');
    await expect(put(unreadable, 'a')).rejects.toMatchObject({ code: 'KVASIR_TIER_FAILED' });
    expect(await tier.has([suiteKey('a')], signal)).toEqual([true]);
  });
});
