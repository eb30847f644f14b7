import { existsSync, mkdtempSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import { needs } from '../../test/support/needs.ts';
import { makeFolders } from './make-folders.ts';

const root = mkdtempSync(join(tmpdir(), 'kvasir-folders-'));
afterAll(() => rmSync(root, { recursive: true }));

describe('makeFolders', () => {
  it('creates the folder and the folders above it, also when several callers do so at once', async () => {
    const path = join(root, 'a', 'b', 'c');
    await Promise.all(Array.from({ length: 8 }, () => makeFolders(path, 0o700)));
    expect(statSync(path).isDirectory()).toBe(true);
    await makeFolders(path);
    await makeFolders(root);
  });

  it('throws if a file has the path of a folder', async () => {
    const file = join(root, 'file');
    writeFileSync(file, '');
    await expect(makeFolders(file)).rejects.toMatchObject({ code: 'EEXIST' });
    await expect(makeFolders(join(file, 'below'))).rejects.toMatchObject({ code: 'ENOTDIR' });
  });

  it(
    'throws below /proc, where the recursive mkdir of Node never ends',
    needs(existsSync('/proc/self'), 'no /proc'),
    async () => {
      await expect(makeFolders('/proc/nothing/kvasir/deeper')).rejects.toMatchObject({ code: 'ENOENT' });
    },
  );
});
