/**
 * Decodes bytes to whole characters, for text that grows token by token: a token may end within a UTF-8 character. The
 * results of `push` and `flush`, joined, equal decoding all bytes at once. A byte order mark is normal text.
 *
 * Invalid bytes become U+FFFD as in Hugging Face's tokenizers: one per maximal part of a character, as in the Encoding standard, or
 * with `hasByteTokens` one per byte. There, the tokenizers also replace whole characters before an invalid byte, if all of them are byte
 * tokens. A stream has sent these characters by then.
 */
export class StreamDecoder {
  readonly #decoder = new TextDecoder('utf-8', { ignoreBOM: true });
  readonly #hasByteTokens: boolean;
  /** With `hasByteTokens`: the bytes of a character that may be completed. */
  #open: Uint8Array = new Uint8Array(0);

  constructor(hasByteTokens = false) {
    this.#hasByteTokens = hasByteTokens;
  }

  /** The characters that are complete now; '' if there is none. */
  push(bytes: Uint8Array): string {
    if (bytes.length === 0) return '';
    if (!this.#hasByteTokens) return this.#decoder.decode(bytes, { stream: true });
    const all = this.#open.length === 0 ? bytes : Buffer.concat([this.#open, bytes]);
    const end = all.length - openLength(all);
    this.#open = all.slice(end);
    return this.#decodeWhole(all.subarray(0, end));
  }

  /** Ends the text: U+FFFD for an incomplete character. Afterwards the decoder can decode another text. */
  flush(): string {
    if (!this.#hasByteTokens) return this.#decoder.decode();
    const open = this.#open;
    this.#open = new Uint8Array(0);
    return '\ufffd'.repeat(open.length);
  }

  #decodeWhole(bytes: Uint8Array): string {
    const text = this.#decoder.decode(bytes);
    if (!text.includes('\ufffd')) return text;
    let result = '';
    for (let at = 0; at < bytes.length; ) {
      const character = this.#decoder.decode(bytes.subarray(at, at + lengthBy(bytes[at]!)));
      const isValid = character.length > 0 && (!character.includes('\ufffd') || isReplacement(bytes, at));
      result += isValid ? character : '\ufffd';
      at += isValid ? lengthBy(bytes[at]!) : 1;
    }
    return result;
  }
}

/** Of a character, by its first byte. */
function lengthBy(first: number): number {
  if (first < 0xc2 || first > 0xf4) return 1;
  return first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
}

/** The bytes at the end that are the beginning of a character. */
function openLength(bytes: Uint8Array): number {
  for (let length = 1; length <= Math.min(3, bytes.length); length++) {
    const byte = bytes[bytes.length - length]!;
    const isContinuation = (byte & 0xc0) === 0x80;
    if (!isContinuation) return lengthBy(byte) > length ? length : 0;
  }
  return 0;
}

/** Whether the text itself has U+FFFD here. */
const isReplacement = (bytes: Uint8Array, at: number): boolean =>
  bytes[at] === 0xef && bytes[at + 1] === 0xbf && bytes[at + 2] === 0xbd;
