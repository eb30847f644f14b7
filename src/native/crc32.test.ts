import { crc32 as zlibCrc32 } from 'node:zlib';
import { describe, expect, it } from 'vitest';
import { needs } from '../../test/support/needs.ts';
import { Prng } from '../base/prng.ts';
import { loadNative } from '../ggml/ffi.ts';
import { openCrc32 } from './crc32.ts';

const reason = 'no C compiler, or a CPU without PCLMULQDQ';
const ofThisCpu = await openCrc32(loadNative());
const forms = [
  ['this CPU', ofThisCpu],
  ['a CPU without AVX', ofThisCpu && (await openCrc32(loadNative(), { cpuFlags: '-march=westmere' }))],
] as const;

for (const [cpu, crc32] of forms)
  describe(`the kernel for ${cpu}`, () => {
    it(
      'crc32 equals zlib’s CRC32 for bytes at every alignment and of every length',
      needs(crc32 !== undefined, reason),
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

    it(
      'a copy has the same bytes and zlib’s CRC32 at every alignment of both sides and of every length, and writes no others',
      needs(crc32 !== undefined, reason),
      () => {
        const random = new Prng(2);
        const bytes = Uint8Array.from({ length: 9_000 }, () => random.between(0, 255));
        const target = new Uint8Array(9_000);
        const checkCopy = (length: number, from: number, to: number): void => {
          const part = bytes.subarray(from, from + length);
          target.fill(0x5a);
          const into = target.subarray(to, to + length);
          expect(crc32!.copy(into, part), `${length} bytes from ${from} to ${to}`).toBe(zlibCrc32(part));
          expect(Buffer.compare(into, part)).toBe(0);
          const isUntouched = (others: Uint8Array): boolean => others.every((byte) => byte === 0x5a);
          expect(isUntouched(target.subarray(0, to)) && isUntouched(target.subarray(to + length))).toBe(true);
        };
        for (let length = 0; length < 700; length++) checkCopy(length, length % 61, 64 + (length % 67));
        for (let alignment = 0; alignment < 64; alignment++) checkCopy(1_000, (alignment * 7) % 64, alignment);
        for (let i = 0; i < 100; i++) checkCopy(random.between(0, 8_000), random.between(0, 99), random.between(0, 99));
      },
    );

    it('a copy of bytes with any one flipped bit has another CRC32', needs(crc32 !== undefined, reason), () => {
      const bytes = Uint8Array.from({ length: 1_803 }, (_, i) => i * 31);
      const into = new Uint8Array(bytes.length);
      const whole = crc32!.copy(into, bytes);
      for (let bit = 0; bit < bytes.length * 8; bit += 5) {
        bytes[bit >> 3]! ^= 1 << (bit & 7);
        expect(crc32!.copy(into, bytes)).not.toBe(whole);
        bytes[bit >> 3]! ^= 1 << (bit & 7);
      }
    });
  });

it('openCrc32 returns undefined without a compiler', async () => {
  expect(await openCrc32(loadNative(), { compiler: 'no-such-compiler' })).toBeUndefined();
});
