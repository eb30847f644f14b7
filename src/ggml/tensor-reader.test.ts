import { appendFileSync, readFileSync, truncateSync, utimesSync, writeFileSync } from 'node:fs';
import { afterAll, beforeEach, describe, expect, it } from 'vitest';
import { ggufBytes } from '../../test/support/gguf-bytes.ts';
import { temporaryFolder } from '../../test/support/tiny-model.ts';
import { readGguf } from './gguf.ts';
import { readTensors } from './tensor-reader.ts';

const folder = temporaryFolder();
const path = folder.file('data.gguf');
afterAll(() => folder.remove());

describe('reading tensors', () => {
  beforeEach(() => {
    const rows = 3_000_000;
    const bytes = ggufBytes({
      tensors: [
        { name: 'small', shape: [5] },
        { name: 'large', shape: [rows] },
        { name: 'last', shape: [4, 4] },
      ],
    });
    for (let i = 256; i < bytes.length; i++) bytes[i] = (i * 2_654_435_761) >>> 24;
    writeFileSync(path, bytes);
  });

  it('reads every byte, in place or through a staging buffer, and reports progress', async () => {
    const file = await readGguf(path);
    const bytes = readFileSync(path);
    const into = new Uint8Array(file.tensors.get('large')!.byteLength);
    const accepted: Buffer[] = [];
    const progress: number[] = [];
    const accept = (data: Uint8Array) => accepted.push(Buffer.from(data));
    const targets = [
      { tensor: file.tensors.get('last')!, accept },
      { tensor: file.tensors.get('large')!, into },
      { tensor: file.tensors.get('small')!, accept },
    ];
    const total = 12_000_000 + 20 + 64;
    await readTensors(file, targets, (loaded, of) => {
      expect(of).toBe(total);
      progress.push(loaded);
    });
    const expected = (name: string): Buffer => {
      const { fileOffset, byteLength } = file.tensors.get(name)!;
      return bytes.subarray(fileOffset, fileOffset + byteLength);
    };
    expect(Buffer.compare(into, expected('large'))).toBe(0);
    expect(accepted).toEqual([expected('small'), expected('last')]);
    expect(progress).toEqual(progress.toSorted((a, b) => a - b));
    expect(progress.at(-1)).toBe(total);
  });

  it('refuses a file that has changed since its header was checked', async () => {
    const file = await readGguf(path);
    const targets = [{ tensor: file.tensors.get('large')!, into: new Uint8Array(12_000_000) }];
    utimesSync(path, 1, 1);
    await expect(readTensors(file, targets)).rejects.toMatchObject({ code: 'KVASIR_MODEL_FILE_CHANGED' });
    appendFileSync(path, 'x');
    await expect(readTensors(file, targets)).rejects.toThrow(/changed while it was being read/);
  });

  it('refuses a file that becomes shorter while it is read', async () => {
    const file = await readGguf(path);
    const targets = [{ tensor: file.tensors.get('large')!, into: new Uint8Array(12_000_000) }];
    const reading = readTensors(file, targets, () => truncateSync(path, 1000));
    await expect(reading).rejects.toMatchObject({ code: 'KVASIR_MODEL_FILE_CHANGED' });
  });
});
