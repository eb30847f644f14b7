import { expect, test } from 'vitest';
import { loadNative } from '../ggml/ffi.ts';
import { NativeMemory } from './native-memory.ts';

test('native memory has pointers and integers of 64 bits in the order of C', () => {
  const memory = new NativeMemory(loadNative(), 64);
  const values = [0, 1, -1, 2 ** 31, 2 ** 32, -(2 ** 32) - 5, 0x7f12_3456_789a, Number.MAX_SAFE_INTEGER];
  for (const [i, value] of values.entries()) memory.setInt64(8 * i, value);
  expect(values.map((_, i) => memory.bytes.getBigInt64(8 * i, true))).toEqual(values.map(BigInt));
  memory.setPointer(0, memory.address);
  expect(memory.bytes.getBigUint64(0, true)).toBe(BigInt(memory.address));
});
