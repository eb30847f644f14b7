/**
 * Bytes in, whole characters out, for text that grows token by token: a token may end in the middle of a UTF-8
 * character. What `push` and `flush` return, joined, is what one decoder gives for all bytes at once; invalid bytes
 * become U+FFFD as the Encoding standard says (one per maximal part). A byte order mark is text like any other.
 */
export class StreamDecoder {
  readonly #decoder = new TextDecoder('utf-8', { ignoreBOM: true });

  /** The characters that are complete now; '' when the bytes are all of an unfinished one. */
  push(bytes: Uint8Array): string {
    return bytes.length === 0 ? '' : this.#decoder.decode(bytes, { stream: true });
  }

  /** What is left at the end: U+FFFD for an unfinished character. The decoder is as new afterwards. */
  flush(): string {
    return this.#decoder.decode();
  }
}
