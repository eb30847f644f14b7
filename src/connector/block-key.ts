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

const codeOfDigit = Uint8Array.from('0123456789abcdef', (digit) => digit.charCodeAt(0));
/** Scratch memory: the character codes of one digest. */
const hexCodes: number[] = new Array<number>(digestWords * 8).fill(0);
const keyPattern = /^(0|[1-9]\d{0,4})-([0-9a-f]{64})$/;

/** The key of the block at `index`, whose digest is `words[index * 8 .. index * 8 + 7]`. */
export function blockKey(group: GroupIndex, words: Uint32Array, index: BlockIndex): BlockKey {
  assert(Number.isInteger(group) && group >= 0 && group <= groupMax, `KV group ${group}`);
  assert((index + 1) * digestWords <= words.length, `the block at index ${index} has no digest`);
  // One call makes one string. Concatenation would make dozens of short ones, for each block that a connector is asked for.
  for (let i = 0; i < digestWords; i++) writeHex(words[index * digestWords + i]!, i * 8);
  return `${group}-${String.fromCharCode.apply(null, hexCodes)}` as BlockKey;
}

/** Writes the bytes of a little-endian word as character codes. */
function writeHex(word: number, at: number): void {
  for (let byte = 0; byte < 4; byte++) {
    const value = (word >>> (byte * 8)) & 255;
    hexCodes[at + byte * 2] = codeOfDigit[value >>> 4]!;
    hexCodes[at + byte * 2 + 1] = codeOfDigit[value & 15]!;
  }
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
