import { expect, it } from 'vitest';
import { preferHugePages } from './huge-pages.ts';
import { addressOfBytes } from './native-memory.ts';

it('preferHugePages does not change the content of memory', () => {
  const bytes = new Uint8Array(9 << 20);
  for (let i = 0; i < bytes.length; i += 4096) bytes[i] = i >> 12;
  const { base } = addressOfBytes(bytes);
  for (const [from, length] of [
    [0, bytes.length],
    [12_345, 6 << 20],
    [0, 100],
  ] as const) {
    preferHugePages(base + from, length);
  }
  for (let i = 0; i < bytes.length; i += 4096) expect(bytes[i]).toBe((i >> 12) & 255);
});
