import { expect, it } from 'vitest';
import { loadNative } from './ffi.ts';
import { preferHugePages } from './huge-pages.ts';

it('preferHugePages does not change the content of memory', () => {
  const native = loadNative();
  const memory = new ArrayBuffer(9 << 20);
  const bytes = new Uint8Array(memory);
  for (let i = 0; i < bytes.length; i += 4096) bytes[i] = i >> 12;
  const at = native.addressOf(memory);
  for (const [from, length] of [
    [0, bytes.length],
    [12_345, 6 << 20],
    [0, 100],
  ] as const) {
    preferHugePages(native, at + from, length);
  }
  for (let i = 0; i < bytes.length; i += 4096) expect(bytes[i]).toBe((i >> 12) & 255);
});
