/**
 * Where a reader of UTF-8 is: 0 is between characters, and the others say which bytes the character still needs. Overlong forms, surrogates
 * and code points above U+10FFFF are not read.
 */
export const betweenCharacters = 0;
const stateCount = 8;
/** First byte, last byte and the state after it, for each state. */
const steps: readonly (readonly (readonly [number, number, number])[])[] = [
  [
    [0x00, 0x7f, 0],
    [0xc2, 0xdf, 1],
    [0xe0, 0xe0, 4],
    [0xe1, 0xec, 2],
    [0xed, 0xed, 5],
    [0xee, 0xef, 2],
    [0xf0, 0xf0, 6],
    [0xf1, 0xf3, 3],
    [0xf4, 0xf4, 7],
  ],
  [[0x80, 0xbf, 0]],
  [[0x80, 0xbf, 1]],
  [[0x80, 0xbf, 2]],
  [[0xa0, 0xbf, 1]],
  [[0x80, 0x9f, 1]],
  [[0x90, 0xbf, 2]],
  [[0x80, 0x8f, 2]],
];

/** `utf8Next[state * 256 + byte]`; -1: no character has this byte here. */
export const utf8Next = new Int8Array(stateCount * 256).fill(-1);
for (const [state, ranges] of steps.entries()) {
  for (const [first, last, target] of ranges) utf8Next.fill(target, state * 256 + first, state * 256 + last + 1);
}

/** Of a character of several bytes. */
export const isFirstByte = (byte: number): boolean => byte > 0x7f && utf8Next[byte] !== -1;

/** All states, one bit each. */
export const allUtf8States = (1 << stateCount) - 1;

/** The states from which the byte leads into one of `states`. */
export function utf8Before(byte: number, states: number): number {
  let found = 0;
  for (let state = 0; state < stateCount; state++) {
    const next = utf8Next[state * 256 + byte]!;
    if (next !== -1 && (states & (1 << next)) !== 0) found |= 1 << state;
  }
  return found;
}
