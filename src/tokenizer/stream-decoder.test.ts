import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { fuzzRuns } from '../../test/support/long-form.ts';
import { StreamDecoder } from './stream-decoder.ts';

const bytesOf = (text: string) => new TextEncoder().encode(text);

describe('StreamDecoder', () => {
  it('returns a character with its last byte', () => {
    const decoder = new StreamDecoder();
    const bytes = bytesOf('a🐦b');
    const pieces = Array.from(bytes, (byte) => decoder.push(Uint8Array.of(byte)));
    expect(pieces).toEqual(['a', '', '', '', '🐦', 'b']);
    expect(decoder.flush()).toBe('');
  });

  it('replaces an incomplete character at the next byte that does not continue it, or at the end', () => {
    const decoder = new StreamDecoder();
    expect(decoder.push(Uint8Array.of(0xf0, 0x9f))).toBe('');
    expect(decoder.push(Uint8Array.of(0x41))).toBe('\ufffdA');
    expect(decoder.push(Uint8Array.of(0xc3))).toBe('');
    expect(decoder.flush()).toBe('\ufffd');
    expect(decoder.push(bytesOf('new'))).toBe('new');
  });

  it('keeps a byte order mark', () => {
    const decoder = new StreamDecoder();
    expect(decoder.push(bytesOf('\ufeffx')) + decoder.flush()).toBe('\ufeffx');
  });

  /** Valid text, random bytes, and bytes near the borders of UTF-8's ranges. */
  const someBytes = fc.oneof(
    fc.string({ unit: 'binary' }).map((text) => [...bytesOf(text)]),
    fc.array(fc.integer({ min: 0, max: 255 })),
    fc.array(
      fc.constantFrom(
        0x41,
        0x7f,
        0x80,
        0xbf,
        0xc0,
        0xc2,
        0xe0,
        0xa0,
        0xed,
        0x9f,
        0xef,
        0xbb,
        0xf0,
        0x90,
        0xf4,
        0x8f,
        0xf5,
      ),
    ),
  );

  it('equals decoding all bytes at once, for any parts', () => {
    fc.assert(
      fc.property(
        fc.array(someBytes, { maxLength: 6 }),
        fc.infiniteStream(fc.integer({ min: 0, max: 5 })),
        (parts, sizes) => {
          const bytes = Uint8Array.from(parts.flat());
          const decoder = new StreamDecoder();
          let text = '';
          for (let start = 0; start < bytes.length; ) {
            const size = sizes.next().value as number;
            const piece = decoder.push(bytes.subarray(start, start + size));
            // Each piece is well-formed text without half a character.
            expect(/\p{Surrogate}/u.test(piece)).toBe(false);
            text += piece;
            start += size;
          }
          text += decoder.flush();
          expect(text).toBe(new TextDecoder('utf-8', { ignoreBOM: true }).decode(bytes));
        },
      ),
      { numRuns: fuzzRuns(2000) },
    );
  });
});
