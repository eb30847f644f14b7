/**
 * Decodes bytes to whole characters, for text that grows token by token: a token may end within a UTF-8 character. The
 * results of `push` and `flush`, joined, equal decoding all bytes at once. Invalid bytes become U+FFFD as in the
 * Encoding standard (one per maximal part). A byte order mark is normal text.
 */
export class StreamDecoder {
  readonly #decoder = new TextDecoder('utf-8', { ignoreBOM: true });

  /** The characters that are complete now; '' if there is none. */
  push(bytes: Uint8Array): string {
    return bytes.length === 0 ? '' : this.#decoder.decode(bytes, { stream: true });
  }

  /** Ends the text: U+FFFD for an incomplete character. Afterwards the decoder can decode another text. */
  flush(): string {
    return this.#decoder.decode();
  }
}
