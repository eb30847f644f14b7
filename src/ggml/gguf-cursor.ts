import type { FileHandle } from 'node:fs/promises';
import { ggufCorrupt, ggufTruncated } from './errors.ts';

const BUFFER_BYTES = 1 << 20;

/**
 * Reads a file from start to end through one bounded buffer. Allocates memory for a length in the file only after it
 * has checked that the file is long enough.
 *
 * `take` calls are synchronous and need an `ensure` call for their bytes before, so that hundreds of thousands of
 * strings need no promise each.
 */
export class GgufCursor {
  readonly path: string;
  readonly fileBytes: number;
  readonly #handle: FileHandle;
  readonly #buffer: Buffer;
  #bufferOffset = 0;
  #bufferLength = 0;
  #position = 0;

  constructor(handle: FileHandle, path: string, fileBytes: number) {
    this.#handle = handle;
    this.path = path;
    this.fileBytes = fileBytes;
    this.#buffer = Buffer.allocUnsafe(Math.min(BUFFER_BYTES, Math.max(fileBytes, 1)));
  }

  /** Offset of the next byte from the start of the file. */
  get position(): number {
    return this.#position;
  }

  /** Whether the next `bytes` are in the buffer, so that `take` may be called without `ensure`. */
  has(bytes: number): boolean {
    return this.#position + bytes <= this.#bufferOffset + this.#bufferLength;
  }

  /** Reads the next `bytes` (at most the buffer's size) into the buffer. Throws if the file ends before them. */
  async ensure(bytes: number, what: string): Promise<void> {
    if (this.has(bytes)) return;
    this.require(bytes, what);
    this.#bufferOffset = this.#position;
    this.#bufferLength = 0;
    const wanted = Math.min(this.#buffer.length, this.fileBytes - this.#position);
    while (this.#bufferLength < wanted) {
      const { bytesRead } = await this.#handle.read(
        this.#buffer,
        this.#bufferLength,
        wanted - this.#bufferLength,
        this.#bufferOffset + this.#bufferLength,
      );
      if (bytesRead === 0) throw this.#truncated(bytes, what);
      this.#bufferLength += bytesRead;
    }
  }

  /** Throws unless the file has `bytes` more bytes. */
  require(bytes: number, what: string): void {
    if (this.#position + bytes > this.fileBytes) throw this.#truncated(bytes, what);
  }

  skip(bytes: number, what: string): void {
    this.require(bytes, what);
    this.#position += bytes;
  }

  takeU32(): number {
    return this.#buffer.readUInt32LE(this.#advance(4));
  }

  /** A copy of the next bytes. */
  takeBytes(bytes: number): Buffer {
    const at = this.#advance(bytes);
    return Buffer.from(this.#buffer.subarray(at, at + bytes));
  }

  /** A copy of the next bytes; the position does not change. */
  peekBytes(bytes: number): Buffer {
    const at = this.#position - this.#bufferOffset;
    return Buffer.from(this.#buffer.subarray(at, at + bytes));
  }

  /** A u64 that must be at most `limit`. */
  takeCount(limit: number, what: string): number {
    const at = this.#advance(8);
    // Without a BigInt, because a vocabulary has hundreds of thousands of lengths. A rounded number is over each limit.
    const value = this.#buffer.readUInt32LE(at) + this.#buffer.readUInt32LE(at + 4) * 2 ** 32;
    if (value <= limit) return value;
    throw this.corrupt(`${what} is ${this.#buffer.readBigUInt64LE(at)}, more than ${limit}`, 8);
  }

  /** A length-prefixed string of at most `limit` bytes (which must fit the buffer). */
  async string(limit: number, what: string): Promise<string> {
    await this.ensure(8, what);
    const length = this.takeCount(limit, `the length of ${what}`);
    await this.ensure(length, what);
    return this.takeBytes(length).toString('utf8');
  }

  corrupt(problem: string, bytesBefore = 0): Error {
    return ggufCorrupt({ path: this.path, problem, offset: this.#position - bytesBefore });
  }

  #advance(bytes: number): number {
    const at = this.#position - this.#bufferOffset;
    this.#position += bytes;
    return at;
  }

  #truncated(bytes: number, what: string): Error {
    const neededBytes = this.#position + bytes;
    return ggufTruncated({ path: this.path, fileBytes: this.fileBytes, what, neededBytes });
  }
}
