import * as fs from 'node:fs';
import { rename, unlink } from 'node:fs/promises';
import { afterAll, beforeEach, describe, expect, it } from 'vitest';
import { temporaryFolder } from '../../test/support/tiny-model.ts';
import { replaceFile, replaceFileSync } from './replace-file.ts';

const folder = temporaryFolder();
afterAll(() => folder.remove());

/** As on Windows: a file that is open cannot be replaced, and can be renamed. */
const refuseOpen = (open: string, to: string): void => {
  if (to === open && fs.existsSync(open)) throw Object.assign(new Error('rename'), { code: 'EPERM' });
};
const newNeverMoves = '(the new file)';
/** A scanner of viruses has the new file open. */
const refuseNew = (open: string, from: fs.PathLike): void => {
  if (open === newNeverMoves && String(from).endsWith('new'))
    throw Object.assign(new Error('rename'), { code: 'EBUSY' });
};
const asyncCalls = (open: string) => ({
  rename: async (from: fs.PathLike, to: fs.PathLike) => {
    refuseOpen(open, String(to));
    refuseNew(open, from);
    await rename(from, to);
  },
  unlink,
});
const syncCalls = (open: string) => ({
  renameSync: (from: fs.PathLike, to: fs.PathLike) => {
    refuseOpen(open, String(to));
    refuseNew(open, from);
    fs.renameSync(from, to);
  },
  unlinkSync: fs.unlinkSync,
});

describe.each([
  ['later', (from: string, to: string, open = '') => replaceFile(from, to, asyncCalls(open))],
  ['at once', async (from: string, to: string, open = '') => replaceFileSync(from, to, syncCalls(open))],
])('a file that is replaced %s', (_, replace) => {
  const [from, to] = [folder.file('replaced/new'), folder.file('replaced/file')];
  const content = () =>
    fs
      .readdirSync(folder.file('replaced'))
      .map((name) => [name, fs.readFileSync(folder.file(`replaced/${name}`), 'utf8')]);
  beforeEach(() => {
    fs.rmSync(folder.file('replaced'), { recursive: true, force: true });
    fs.mkdirSync(folder.file('replaced'));
    fs.writeFileSync(from, 'new');
  });

  it('has the new content, whether it was there, open or neither', async () => {
    for (const open of ['', to]) {
      for (const before of ['none', 'old']) {
        fs.writeFileSync(from, 'new');
        if (before === 'old') fs.writeFileSync(to, before);
        await replace(from, to, open);
        expect(content()).toEqual([['file', 'new']]);
        fs.rmSync(to);
      }
    }
  });

  it('stays if the new one can never be renamed', async () => {
    fs.writeFileSync(to, 'old');
    await expect(replace(from, to, newNeverMoves)).rejects.toMatchObject({ code: 'EBUSY' });
    expect(content()).toEqual([
      ['file', 'old'],
      ['new', 'new'],
    ]);
  });

  it('stays, with the first error, if it cannot be moved away', async () => {
    fs.mkdirSync(to);
    fs.writeFileSync(folder.file('replaced/file/inside'), '');
    await expect(replace(from, to)).rejects.toMatchObject({ code: expect.stringMatching(/EISDIR|ENOTEMPTY|EEXIST/) });
    await expect(replace(folder.file('replaced/none'), folder.file('replaced/other'))).rejects.toMatchObject({
      code: 'ENOENT',
    });
    expect(fs.readdirSync(folder.file('replaced')).sort()).toEqual(['file', 'new']);
  });
});
