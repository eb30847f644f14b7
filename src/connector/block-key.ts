import { assert } from '../base/assert.ts';
import type { Brand } from '../base/brand.ts';
import { type BlockIndex, type GroupIndex, groupIndex } from '../core/ids.ts';

/**
 * The name of a block in every store: `<group>-<sha256 of the chain in 64 hex digits>`. The digest covers the fingerprint,
 * the cache salt, the block's tokens and all tokens before it (`kv/block-hash.ts`), so equal keys mean equal content
 * (I10). A string, because it crosses process borders and names files.
 */
export type BlockKey = Brand<string, 'BlockKey'>;

/** 32-bit words of a digest, little-endian, as in `kv/block-hash.ts`. */
const digestWords = 8;
export const digestBytes = digestWords * 4;
const groupMax = 0xffff;

const hexOfByte = Array.from({ length: 256 }, (_, byte) => byte.toString(16).padStart(2, '0'));
const keyPattern = /^(0|[1-9]\d{0,4})-([0-9a-f]{64})$/;

/** The key of the block at `index`, whose digest is `words[index * 8 .. index * 8 + 7]`. */
export function blockKey(group: GroupIndex, words: Uint32Array, index: BlockIndex): BlockKey {
  assert(Number.isInteger(group) && group >= 0 && group <= groupMax, `KV group ${group}`);
  assert((index + 1) * digestWords <= words.length, `the block at index ${index} has no digest`);
  let hex = '';
  for (let i = index * digestWords; i < (index + 1) * digestWords; i++) {
    const word = words[i]!;
    hex += hexOfByte[word & 255]! + hexOfByte[(word >>> 8) & 255]!;
    hex += hexOfByte[(word >>> 16) & 255]! + hexOfByte[word >>> 24]!;
  }
  return `${group}-${hex}` as BlockKey;
}

/** Whether a text from outside (a file name, another process) is a key. */
export function isBlockKey(text: string): text is BlockKey {
  const match = keyPattern.exec(text);
  return match !== null && Number(match[1]) <= groupMax;
}

export function groupOfKey(key: BlockKey): GroupIndex {
  return groupIndex(Number(key.slice(0, key.length - digestBytes * 2 - 1)));
}

export function digestHexOfKey(key: BlockKey): string {
  return key.slice(-digestBytes * 2);
}

/** Writes the key's digest to `out[at .. at + 31]`. */
export function writeKeyDigest(key: BlockKey, out: Uint8Array, at: number): void {
  const start = key.length - digestBytes * 2;
  for (let i = 0; i < digestBytes; i++) {
    const digit = start + i * 2;
    out[at + i] = (valueOfDigit(key.charCodeAt(digit)) << 4) | valueOfDigit(key.charCodeAt(digit + 1));
  }
}

/** Of a lower-case hexadecimal digit. */
const valueOfDigit = (code: number): number => (code <= 0x39 ? code - 0x30 : code - 0x61 + 10);
