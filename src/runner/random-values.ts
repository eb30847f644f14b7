import { Q8_0 } from '../ggml/types.ts';
import type { KvType } from './kv-memory.ts';

/** Uniform in [-1, 1), from a linear congruential generator. */
export function randomFloats(length: number, seed: number): Float32Array {
  const values = new Float32Array(length);
  let state = seed;
  for (let i = 0; i < length; i++) {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    values[i] = state / 2 ** 31 - 1;
  }
  return values;
}

/** KV in (-1, 1): f16, or for q8_0 scales between 2^-9 and 2^-8 and bytes of any value. */
export function fillRandomKv(into: Uint8Array, type: KvType, seed: number): void {
  fillRandomF16(new Uint16Array(into.buffer, into.byteOffset, into.byteLength >> 1), seed);
  if (type !== Q8_0) return;
  for (let at = 0; at < into.length; at += Q8_0.typeSize) into[at + 1] = 0x18 | (into[at + 1]! & 0x83);
}

/** f16 of either sign with exponents -9 to -1, so in (-1, 1). */
export function fillRandomF16(into: Uint16Array, seed: number): void {
  let state = seed;
  for (let i = 0; i < into.length; i++) {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    into[i] = ((state >>> 16) & 0x83ff) | ((6 + ((state >>> 8) % 9)) << 10);
  }
}
