import { crc32 as zlibCrc32 } from 'node:zlib';
import { expect, it } from 'vitest';
import { itNeeds } from '../../test/support/needs.ts';
import { Prng } from '../base/prng.ts';
import { loadNative } from '../ggml/ffi.ts';
import { openCrc32 } from './crc32.ts';

const crc32 = await openCrc32(loadNative());
const reason = 'no C compiler, or a CPU without PCLMULQDQ';

itNeeds(
  crc32 !== undefined,
  reason,
  'crc32 equals zlib’s CRC32 for bytes at every alignment and of every length',
  () => {
    const random = new Prng(1);
    const bytes = Uint8Array.from({ length: 5_000 }, () => random.between(0, 255));
    for (let length = 0; length < 600; length++) {
      const part = bytes.subarray(length % 67, (length % 67) + length);
      expect(crc32!(part)).toBe(zlibCrc32(part));
    }
    for (let i = 0; i < 200; i++) {
      const start = random.between(0, bytes.length);
      const part = bytes.subarray(start, start + random.between(0, bytes.length - start));
      expect(crc32!(part)).toBe(zlibCrc32(part));
    }
    expect(crc32!(new Uint8Array(1_835_008))).toBe(zlibCrc32(new Uint8Array(1_835_008)));
  },
);

it('openCrc32 returns undefined without a compiler', async () => {
  expect(await openCrc32(loadNative(), { compiler: 'no-such-compiler' })).toBeUndefined();
});
