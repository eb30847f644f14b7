import { spawnSync } from 'node:child_process';
import { truncateSync, writeFileSync } from 'node:fs';
import { afterAll, describe, expect, it } from 'vitest';
import { type GgufBytesOptions, ggufBytes, text, u32, u64 } from '../../test/support/gguf-bytes.ts';
import { temporaryFolder, writeTinyModel } from '../../test/support/tiny-model.ts';
import { readGguf, readGgufBytes, readGgufNumbers } from './gguf.ts';

const folder = temporaryFolder();
afterAll(() => folder.remove());

let files = 0;
function write(bytes: Uint8Array | string): string {
  const path = folder.file(`${++files}.gguf`);
  writeFileSync(path, bytes);
  return path;
}
const read = (options: GgufBytesOptions) => readGguf(write(ggufBytes(options)));

describe('reading a GGUF file', () => {
  it('returns metadata, arrays on demand, and the offset of each tensor', async () => {
    const bytes = ggufBytes({
      keys: [
        ['general.name', { string: 'ünï' }],
        ['n', { u32: 7 }],
        ['f', { f32: 0.5 }],
        ['b', { bool: true }],
        ['words', { strings: ['a', '', 'ü'] }],
        ['numbers', { i32s: [1, -2, 3] }],
      ],
      tensors: [
        { name: 'a', shape: [3] },
        { name: 'b', shape: [4, 2] },
      ],
    });
    const file = await readGguf(write(bytes));
    const { metadata } = file;
    expect([metadata.string('general.name'), metadata.u32('n'), metadata.f32('f'), metadata.bool('b')]).toEqual([
      'ünï',
      7,
      0.5,
      true,
    ]);
    expect(metadata.u32('absent')).toBeUndefined();
    const words = Buffer.from(await readGgufBytes(file, metadata.array('words')!));
    expect(words.toString('hex')).toBe(`${'01'.padEnd(16, '0')}61${'0'.repeat(16)}${'02'.padEnd(16, '0')}c3bc`);
    expect(await readGgufNumbers(file, metadata.array('numbers')!)).toEqual(new Int32Array([1, -2, 3]));
    expect([...file.tensors.values()].map(({ name, ne, byteLength }) => [name, ne, byteLength])).toEqual([
      ['a', [3, 1, 1, 1], 12],
      ['b', [4, 2, 1, 1], 32],
    ]);
    const { fileOffset } = file.tensors.get('b')!;
    expect(fileOffset - file.dataOffset).toBe(32);
    expect(file.dataOffset % 32).toBe(0);
    expect(bytes.length).toBe(fileOffset + 32);
  });

  it('accepts version 2, other alignments, and a file without the padding of its last tensor', async () => {
    await expect(read({ version: 2 })).resolves.toMatchObject({ version: 2 });
    const aligned = { keys: [['general.alignment', { u32: 64 }]], alignment: 64 } as const;
    const path = write(ggufBytes({ ...aligned, tensors: [{ name: 'a', shape: [3] }] }));
    const file = await readGguf(path);
    expect(file).toMatchObject({ alignment: 64 });
    truncateSync(path, file.tensors.get('a')!.fileOffset + 12);
    await expect(readGguf(path)).resolves.toMatchObject({ alignment: 64 });
  });

  it('reads the header of a file that ggml wrote, without the vocabulary', async () => {
    const path = folder.file('tiny.gguf');
    await writeTinyModel(path, { architecture: 'qwen3', type: 'Q4_K_M', vocab: 2000 });
    const file = await readGguf(path);
    expect(file.metadata.array('tokenizer.ggml.tokens')).toMatchObject({ elementType: 'string', length: 2000 });
    expect(new Set([...file.tensors.values()].map(({ type }) => type.name))).toEqual(new Set(['F32', 'Q4_K', 'Q6_K']));
  });
});

describe('a file that is no GGUF file', () => {
  it.each([
    ['an empty file', '', /it is empty/],
    [
      'a Git LFS pointer',
      'version https://git-lfs.github.com/spec/v1\noid sha256:0\n',
      /Git LFS pointer.*git lfs pull/,
    ],
    ['a web page', '<!DOCTYPE html><html>', /HTML/],
    ['safetensors', '\x10\0\0\0\0\0\0\0{"__metadata__":{}}', /safetensors/],
    ['a PyTorch checkpoint', 'PK\x03\x04aaaaaaaaaaaaaaaaaaaaaaaa', /ZIP archive/],
    ['a JSON file', '{"a": 1}', /JSON/],
    ['random bytes', '\x01\x02\x03\x04\x05\x06\x07\x08\x09', /bytes 0102030405060708/],
  ])('is refused with the name of its format: %s', async (_, content, message) => {
    const reading = readGguf(write(Buffer.from(content, 'latin1')));
    await expect(reading).rejects.toThrow(message);
    await expect(reading).rejects.toMatchObject({ code: 'KVASIR_NOT_GGUF' });
  });

  it('is refused if the path has no file, or a folder', async () => {
    await expect(readGguf(folder.file('absent'))).rejects.toThrow(/there is no such file/);
    await expect(readGguf(folder.path)).rejects.toMatchObject({ code: 'KVASIR_MODEL_FILE_UNREADABLE' });
  });

  it.each([
    [1, /version 1; supported: 2, 3/],
    [4, /version 4/],
    [0x03000000, /version 3, big-endian/],
  ])('is refused for version %d', async (version, message) => {
    await expect(read({ version })).rejects.toThrow(message);
  });
});

describe('a corrupt file', () => {
  const tensor = { name: 'a', shape: [3] };
  const huge = 2n ** 40n;
  const cases: readonly (readonly [string, GgufBytesOptions, RegExp])[] = [
    ['a number of tensors that is too large', { tensorCount: 2n ** 63n }, /number of tensors is 9223372036854775808/],
    ['missing keys', { keyCount: 5n }, /truncated: it has 24 bytes, but metadata key 1 of 5 needs/],
    [
      'a key twice',
      {
        keys: [
          ['a', { u32: 1 }],
          ['a', { u32: 1 }],
        ],
      },
      /key a appears twice/,
    ],
    ['an empty key', { keys: [['', { u32: 1 }]] }, /an empty or invalid name/],
    ['a value of an unknown type', { keys: [['a', u32(99)]] }, /value of a has the unknown type 99/],
    [
      'an array in an array',
      { keys: [['a', Buffer.concat([u32(9), u32(9), u64(1)])]] },
      /metadata a is an array of arrays/,
    ],
    ['an array of unknown elements', { keys: [['a', Buffer.concat([u32(9), u32(99), u64(1)])]] }, /element type 99/],
    ['an array longer than the file', { keys: [['a', Buffer.concat([u32(9), u32(8), u64(huge)])]] }, /array a needs/],
    ['a string longer than the file', { keys: [['a', Buffer.concat([u32(8), u64(1000)])]] }, /value of a needs/],
    [
      'a string length that is too large',
      { keys: [['a', Buffer.concat([u32(8), u64(huge)])]] },
      /length of the value of a is/,
    ],
    ['an alignment that is no power of two', { keys: [['general.alignment', { u32: 24 }]] }, /a power of two/],
    ['an alignment of another type', { keys: [['general.alignment', { string: '32' }]] }, /general.alignment must be/],
    ['a tensor twice', { tensors: [tensor, tensor] }, /tensor a appears twice/],
    ['a tensor without dimensions', { tensors: [{ name: 'a', shape: [] }] }, /0 dimensions/],
    ['a tensor of five dimensions', { tensors: [{ name: 'a', shape: [1, 1, 1, 1, 1] }] }, /5 dimensions/],
    ['an empty tensor', { tensors: [{ name: 'a', shape: [3, 0] }] }, /empty shape \[3, 0, 1, 1\]/],
    ['a tensor of a removed type', { tensors: [{ ...tensor, type: 4 }] }, /unknown type 4/],
    ['rows that are no whole blocks', { tensors: [{ ...tensor, type: 8 }] }, /rows of 3 elements, .* block of Q8_0/],
    [
      'shapes whose product overflows',
      { tensors: [{ name: 'a', shape: [huge, huge, huge], bytes: 4 }] },
      /tensor a needs/,
    ],
    ['tensors that overlap', { tensors: [tensor, { name: 'b', shape: [3], offset: 0 }] }, /tensor b has offset 0, but/],
    [
      'a gap between tensors',
      { tensors: [tensor, { name: 'b', shape: [3], offset: 64 }] },
      /tensor b has offset 64, but/,
    ],
    ['tensor data that is missing', { tensors: [{ ...tensor, bytes: 0 }] }, /truncated: .* tensor a needs \d+/],
    ['trailing garbage', { tensors: [tensor], garbage: 1 }, /too long/],
    ['a name that is too long for ggml', { tensors: [{ name: 'a'.repeat(64), shape: [1] }] }, /length of the name/],
    [
      'a part of a split model with another name',
      { keys: [['split.count', { u32: 3 }]] },
      /part 1 of 3 of a split model/,
    ],
  ];
  it.each(cases)('is refused for %s', async (_, options, message) => {
    await expect(read(options)).rejects.toThrow(message);
    await expect(read(options)).rejects.toMatchObject({ name: 'KvasirError' });
  });

  it('that is truncated is refused with its size and the needed size', async () => {
    const bytes = ggufBytes({ tensors: [{ name: 'a', shape: [1000] }] });
    const reading = readGguf(write(bytes.subarray(0, 2000)));
    await expect(reading).rejects.toMatchObject({ fields: { fileBytes: 2000, neededBytes: bytes.length } });
  });

  it('is refused if a string of an array ends after the end of the file', async () => {
    const array = Buffer.concat([u32(9), u32(8), u64(2), text('a'), u64(50)]);
    await expect(read({ keys: [['a', array]] })).rejects.toThrow(/array a needs/);
  });
});

describe('metadata of another type than the getter', () => {
  it('is an error with the found type and value', async () => {
    const keys = [
      ['s', { string: 'x' }],
      ['a', { i32s: [1] }],
      ['f', { f32: 1.5 }],
      ['nan', { f32: Number.NaN }],
    ] as const;
    const { metadata } = await read({ keys });
    expect(() => metadata.u32('s')).toThrow(/s must be an unsigned 32-bit integer, found string x/);
    expect(() => metadata.u32('f')).toThrow(/found f32 1.5/);
    expect(() => metadata.string('a')).toThrow(/found an array of 1 i32/);
    expect(() => metadata.f32('nan')).toThrow(/a finite number/);
    expect(() => metadata.bool('s')).toThrow(/a boolean/);
    expect(() => metadata.array('s')).toThrow(/an array/);
    expect(() => metadata.require('q', metadata.u32('q'))).toThrow(/has no metadata q/);
  });
});

it('a FIFO is refused without waiting for a writer', async () => {
  const path = folder.file('fifo.gguf');
  expect(spawnSync('mkfifo', [path]).status).toBe(0);
  await expect(readGguf(path)).rejects.toMatchObject({
    code: 'KVASIR_MODEL_FILE_UNREADABLE',
    message: expect.stringContaining('it is not a file'),
  });
});
