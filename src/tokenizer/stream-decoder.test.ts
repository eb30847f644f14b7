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

  // Results of Python's tokenizers 0.23.3 (`decoders.ByteFallback`), but for [0xe2, 0x82, 0xac, 0xe2]: four U+FFFD.
  it.each([
    [[0x61, 0xe2, 0x82], 'a\ufffd\ufffd'],
    [[0x61, 0xe2, 0x82, 0x62], 'a\ufffd\ufffdb'],
    [[0xff, 0x41], '\ufffdA'],
    [[0xf0, 0x9f, 0x90], '\ufffd\ufffd\ufffd'],
    [[0xf0, 0x9f, 0x90, 0xa6], '🐦'],
    [[0xe0, 0x80], '\ufffd\ufffd'],
    [[0xe2, 0x82, 0xac, 0xe2], '€\ufffd'],
    [[0xef, 0xbf, 0xbd, 0xff], '\ufffd\ufffd'],
    [[0x80, 0x80, 0x80, 0x80, 0x41], '\ufffd\ufffd\ufffd\ufffdA'],
  ])('with byte tokens, replaces each byte of %j that is no part of a character', (given, expected) => {
    const whole = new StreamDecoder(true);
    expect(whole.push(Uint8Array.from(given)) + whole.flush()).toBe(expected);
    const single = new StreamDecoder(true);
    expect(given.map((byte) => single.push(Uint8Array.of(byte))).join('') + single.flush()).toBe(expected);
    expect(single.push(bytesOf('new'))).toBe('new');
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

  it('gives the same text for any parts, also with byte tokens', () => {
    fc.assert(
      fc.property(fc.array(someBytes, { maxLength: 6 }), fc.integer({ min: 1, max: 5 }), (parts, size) => {
        const bytes = Uint8Array.from(parts.flat());
        const whole = new StreamDecoder(true);
        const expected = whole.push(bytes) + whole.flush();
        const decoder = new StreamDecoder(true);
        let text = '';
        for (let start = 0; start < bytes.length; start += size)
          text += decoder.push(bytes.subarray(start, start + size));
        expect(text + decoder.flush()).toBe(expected);
        const single = new TextDecoder('utf-8', { ignoreBOM: true }).decode(bytes);
        expect(expected.replaceAll('\ufffd', '')).toBe(single.replaceAll('\ufffd', ''));
      }),
      { numRuns: fuzzRuns(1000) },
    );
  });

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
