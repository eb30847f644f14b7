import { mkdirSync, symlinkSync, writeFileSync } from 'node:fs';
import { afterAll, describe, expect, it } from 'vitest';
import { needs } from '../../../test/support/needs.ts';
import { temporaryFolder } from '../../../test/support/tiny-model.ts';
import { ggufFilesBelow } from './model-files.ts';

const folder = temporaryFolder();
afterAll(() => folder.remove());
let count = 0;
/** A folder with empty files, and links. */
function madeOf(files: readonly string[], links: Readonly<Record<string, string>> = {}): string {
  const path = folder.file(`${++count}`);
  mkdirSync(path);
  for (const file of files) {
    mkdirSync(`${path}/${file}`.replace(/\/[^/]*$/, ''), { recursive: true });
    writeFileSync(`${path}/${file}`, '');
  }
  for (const [name, target] of Object.entries(links)) symlinkSync(target, `${path}/${name}`);
  return path;
}
const found = async (path: string) => (await ggufFilesBelow(path)).paths.toSorted((a, b) => (a < b ? -1 : 1));

describe('the GGUF files below a folder', () => {
  it('are found in all folders, also behind links', async () => {
    const elsewhere = madeOf(['deep/c.gguf']);
    const path = madeOf(['a.gguf', 'x/b.GGUF', 'x/readme.md'], {
      other: elsewhere,
      'd.gguf': `${elsewhere}/deep/c.gguf`,
    });
    expect(await found(path)).toEqual(['a.gguf', 'd.gguf', 'other/deep/c.gguf', 'x/b.GGUF']);
  });

  it('are found once where links lead to folders above and to each other', async () => {
    const path = madeOf(['a.gguf', 'x/b.gguf', 'y/c.gguf'], {
      'x/up': '..',
      'x/y': '../y',
      'y/x': '../x',
      self: '.',
      'a-link-to-x': 'x',
      gone: 'nowhere',
      loop: 'loop',
    });
    expect(await found(path)).toEqual(['a.gguf', 'x/b.gguf', 'y/c.gguf']);
  });

  it('end at a bound, and at an abort', async () => {
    const path = madeOf(Array.from({ length: 50 }, (_, i) => `${i}.gguf`));
    const { paths, isCut } = await ggufFilesBelow(path, { entriesMax: 10 });
    expect([paths.length, isCut]).toEqual([10, true]);
    await expect(ggufFilesBelow(path, { signal: AbortSignal.abort(new Error('stop')) })).rejects.toThrow('stop');
  });

  it('need a folder', async () => {
    await expect(ggufFilesBelow(folder.file('nowhere'))).rejects.toMatchObject({ code: 'ENOENT' });
    await expect(ggufFilesBelow(`${madeOf(['a.gguf'])}/a.gguf`)).rejects.toMatchObject({ code: 'ENOTDIR' });
  });
});

describe('a pseudo file system', needs(process.platform === 'linux', 'only Linux has /proc'), () => {
  it.each(['/proc', '/sys'])('has no models: %s', async (path) => {
    expect(await ggufFilesBelow(path)).toEqual({ paths: [], isCut: false });
    // Behind a link too.
    expect(await found(madeOf(['a.gguf'], { link: path }))).toEqual(['a.gguf']);
  });
});
