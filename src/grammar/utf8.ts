import type { CodeRange } from './expression.ts';

/** One range of bytes for each byte of an encoded character. */
export type ByteSequence = readonly CodeRange[];

const lengthEnds = [0x7f, 0x7ff, 0xffff, 0x10ffff];

/**
 * The UTF-8 encodings of a range of code points, as sequences of byte ranges that are independent of each other.
 * (Russ Cox, "Regular Expression Matching in the Wild"; the algorithm of RE2 and of Rust's `utf8-ranges`.)
 */
export function utf8Sequences({ first, last }: CodeRange): ByteSequence[] {
  for (const end of lengthEnds) {
    if (first <= end && end < last) {
      return [...utf8Sequences({ first, last: end }), ...utf8Sequences({ first: end + 1, last })];
    }
  }
  if (last <= 0x7f) return [[{ first, last }]];
  for (let bits = 6; bits <= 18; bits += 6) {
    const mask = (1 << bits) - 1;
    if (first >>> bits === last >>> bits) continue;
    if ((first & mask) !== 0) {
      return [...utf8Sequences({ first, last: first | mask }), ...utf8Sequences({ first: (first | mask) + 1, last })];
    }
    if ((last & mask) !== mask) {
      return [...utf8Sequences({ first, last: (last & ~mask) - 1 }), ...utf8Sequences({ first: last & ~mask, last })];
    }
  }
  const from = encoded(first);
  const to = encoded(last);
  return [from.map((byte, i) => ({ first: byte, last: to[i]! }))];
}

function encoded(codePoint: number): number[] {
  if (codePoint <= 0x7f) return [codePoint];
  const tail = (shift: number): number => 0x80 | ((codePoint >>> shift) & 0x3f);
  if (codePoint <= 0x7ff) return [0xc0 | (codePoint >>> 6), tail(0)];
  if (codePoint <= 0xffff) return [0xe0 | (codePoint >>> 12), tail(6), tail(0)];
  return [0xf0 | (codePoint >>> 18), tail(12), tail(6), tail(0)];
}

const encoder = new TextEncoder();
export const utf8Of = (text: string): Uint8Array => encoder.encode(text);
