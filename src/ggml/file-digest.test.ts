import { createHash } from 'node:crypto';
import {
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  truncateSync,
  utimesSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import { inLongForm } from '../../test/support/long-form.ts';
import { type DigestOptions, digestFile } from './file-digest.ts';

const root = mkdtempSync(join(tmpdir(), 'kvasir-digest-'));
afterAll(() => rmSync(root, { recursive: true, force: true }));
let serial = 0;

/**
 * A file, a cache, and a call of `digestFile`, whose clock is an hour ahead by default. Returns whether it hashed the
 * file.
 */
function setup(content: Uint8Array = Buffer.from('a model')) {
  const folder = join(root, `${serial++}`);
  mkdirSync(folder);
  const path = join(folder, 'm.gguf');
  const cacheFolder = join(folder, 'cache');
  writeFileSync(path, content);
  const digests = join(cacheFolder, 'digests');
  const digest = async (options: DigestOptions = {}) => {
    let wasHashed = false;
    const onProgress = (): void => {
      wasHashed = true;
    };
    const wallNowMs = (): number => Date.now() + 3_600_000;
    const { sha256 } = await digestFile(path, { cacheFolder, wallNowMs, onProgress, ...options });
    expect(sha256).toBe(createHash('sha256').update(readFileSync(path)).digest('hex'));
    return wasHashed;
  };
  return { folder, path, cacheFolder, digests, digest, record: () => join(digests, readdirSync(digests)[0]!) };
}

describe('the digest of a file', () => {
  it('is the sha256 of a file of any number of parts', async () => {
    const part = 64 << 20;
    for (const bytes of inLongForm([0, 1, 1 << 20, part - 1, part, part + 1], [0, 1, part + 1])) {
      const { path, digest } = setup(Buffer.alloc(bytes, 'x'));
      expect(await digest()).toBe(true);
      rmSync(path);
    }
  });

  it('is cached', async () => {
    const { digest, digests } = setup();
    expect(await digest()).toBe(true);
    expect(await digest()).toBe(false);
    expect(readdirSync(digests)).toHaveLength(1);
  });

  const changes: readonly (readonly [string, (path: string) => void])[] = [
    ['is longer', (path) => writeFileSync(path, 'x', { flag: 'a' })],
    ['has other content of the same size', (path) => writeFileSync(path, 'b model')],
    [
      'was changed in place and got its old date again',
      (path) => {
        const { atimeMs, mtimeMs } = statSync(path);
        writeFileSync(path, 'b model');
        utimesSync(path, atimeMs / 1000, mtimeMs / 1000);
      },
    ],
    [
      'was replaced by a file of the same size and date',
      (path) => {
        writeFileSync(`${path}.new`, 'b model');
        utimesSync(`${path}.new`, 1_000_000, 1_000_000);
        renameSync(`${path}.new`, path);
      },
    ],
    ['has another date', (path) => utimesSync(path, 5, 5)],
  ];

  it.each(changes)('is computed again if the file %s', async (_what, change) => {
    const { path, digest } = setup();
    utimesSync(path, 1_000_000, 1_000_000);
    expect(await digest()).toBe(true);
    change(path);
    expect(await digest()).toBe(true);
    expect(await digest()).toBe(false);
  });

  const damages: readonly (readonly [string, (record: string) => void])[] = [
    ['is empty', (record) => truncateSync(record, 0)],
    ['is truncated to half', (record) => truncateSync(record, statSync(record).size >> 1)],
    ['has another digest', (record) => replaceIn(record, /"sha256": "../, '"sha256": "00')],
    ['has another size', (record) => replaceIn(record, /"bytes": \d+/, '"bytes": 8')],
    ['is another kind of JSON', (record) => writeFileSync(record, '[1, null]')],
    ['has no state', (record) => writeFileSync(record, '{"sha256": "00", "state": 1}')],
    [
      'is a folder',
      (record) => {
        rmSync(record);
        mkdirSync(record);
      },
    ],
  ];

  it.each(damages)('is computed again if its cached record %s', async (what, damage) => {
    const { digest, record } = setup();
    await digest();
    damage(record());
    expect(await digest()).toBe(true);
    if (what !== 'is a folder') expect(await digest()).toBe(false);
  });

  it('is not read from the record of another path', async () => {
    const [a, b] = [setup(), setup()];
    await a.digest();
    await b.digest();
    writeFileSync(b.record(), readFileSync(a.record()));
    expect(await b.digest()).toBe(true);
  });

  it('is not cached while a change of the file could keep its dates', async () => {
    const { digest, digests } = setup();
    expect(await digest({ wallNowMs: Date.now })).toBe(true);
    expect(existsSync(digests)).toBe(false);
  });

  it('is computed again if the clock was set to a time before the dates of the file', async () => {
    const { digest } = setup();
    expect(await digest()).toBe(true);
    expect(await digest({ wallNowMs: () => Date.now() - 3_600_000 })).toBe(true);
    expect(await digest()).toBe(false);
  });

  it.each([
    ['below /proc', '/proc/nothing'],
    ['on a full device', '/dev/full'],
    ['that is a file', ''],
  ])('is computed again if the cache is a folder %s, with an event', async (_what, at) => {
    const { digest, path } = setup();
    const events: string[] = [];
    const options = { cacheFolder: at || path, event: (message: string): void => void events.push(message) };
    expect(await digest(options)).toBe(true);
    expect(await digest(options)).toBe(true);
    expect(events[0]).toMatch(/^The digest of .* cannot be cached: .*hashed again at each start\./);
  });

  it('belongs to one state of the file, even if another process writes the file', async () => {
    const { path, cacheFolder } = setup(Buffer.alloc(130 << 20));
    let parts = 0;
    const wallNowMs = (): number => Date.now() + 3_600_000;
    const onProgress = (): void => {
      // After the first part of the first attempt.
      if (parts++ === 0) writeFileSync(path, 'changed', { flag: 'r+' });
    };
    const { sha256 } = await digestFile(path, { cacheFolder, onProgress, wallNowMs });
    expect(sha256).toBe(createHash('sha256').update(readFileSync(path)).digest('hex'));
    const writeAgain = (): void => writeFileSync(path, `${parts++}`, { flag: 'r+' });
    utimesSync(path, 5, 5);
    await expect(digestFile(path, { cacheFolder, onProgress: writeAgain, wallNowMs })).rejects.toMatchObject({
      code: 'KVASIR_MODEL_FILE_CHANGED',
    });
  });

  it('rejects if its signal aborts, and if there is no file', async () => {
    const { path, cacheFolder } = setup(Buffer.alloc(130 << 20));
    const controller = new AbortController();
    const onProgress = (): void => controller.abort();
    await expect(digestFile(path, { cacheFolder, onProgress, signal: controller.signal })).rejects.toThrow(/abort/i);
    await expect(digestFile(`${path}x`, { cacheFolder })).rejects.toMatchObject({
      code: 'KVASIR_MODEL_FILE_UNREADABLE',
    });
  });
});

function replaceIn(path: string, pattern: RegExp, by: string): void {
  writeFileSync(path, readFileSync(path, 'utf8').replace(pattern, by));
}
