import { mkdtempSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import koffi from 'koffi';
import { afterAll, describe, expect, it } from 'vitest';
import { needs } from '../../test/support/needs.ts';
import { canMapFiles, MappedFile } from './mapped-file.ts';

const folder = mkdtempSync(join(tmpdir(), 'kvasir-mapped-'));
afterAll(() => rmSync(folder, { recursive: true }));
const bytesOf = ({ address, byteLength }: MappedFile) => Buffer.from(koffi.view(address, byteLength));

describe('a mapped file', needs(canMapFiles(), 'a system that maps files'), () => {
  it('has the bytes of the file, also after another file has taken its name', () => {
    const path = join(folder, 'a');
    writeFileSync(path, 'one two three');
    const file = new MappedFile(path);
    writeFileSync(`${path}.new`, 'something else');
    renameSync(`${path}.new`, path);
    expect(bytesOf(file).toString()).toBe('one two three');
    expect(file.isChanged).toBe(false);
    file.close();
  });

  it('tells whether the file was written', () => {
    const path = join(folder, 'b');
    writeFileSync(path, 'one two three');
    const file = new MappedFile(path);
    writeFileSync(path, 'one two four.');
    expect(file.isChanged).toBe(true);
    file.close();
  });

  it('cannot be made of a file that is missing or empty', () => {
    expect(() => new MappedFile(join(folder, 'missing'))).toThrow('ENOENT');
    writeFileSync(join(folder, 'empty'), '');
    expect(() => new MappedFile(join(folder, 'empty'))).toThrow(
      expect.objectContaining({ code: 'ENODEV', message: expect.stringContaining('--no-mmap') }),
    );
  });
});

it('Windows maps no files', () => expect(canMapFiles('win32')).toBe(false));
