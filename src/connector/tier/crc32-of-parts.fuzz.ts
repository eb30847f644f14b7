import { crc32 } from 'node:zlib';
import { expect, test } from 'vitest';
import { Prng } from '../../base/prng.ts';
import { Crc32OfParts } from './crc32-of-parts.ts';

test('the CRC32 of parts is the CRC32 of the whole, for parts of every length', () => {
  const parts = new Crc32OfParts();
  for (let seed = 1; seed <= 100; seed++) {
    const prng = new Prng(seed);
    const bytes = Uint8Array.from({ length: prng.between(0, 5_000) }, () => prng.uint32() & 255);
    const usual = prng.between(1, 600);
    parts.begin();
    for (let at = 0; at < bytes.length; ) {
      const length = prng.chance(0.7) ? usual : prng.between(0, 100);
      const part = bytes.subarray(at, at + length);
      parts.add(crc32(part), part.length);
      at += part.length;
    }
    expect(parts.value, `seed ${seed}`).toBe(crc32(bytes));
  }
});
