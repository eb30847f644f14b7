import { closeSync, fstatSync, openSync, readSync, readvSync, type Stats, utimesSync } from 'node:fs';
import { assert } from '../../../base/assert.ts';
import type { BlockKey } from '../../block-key.ts';
import type { Crc32 } from '../../connector.ts';
import type { MissReason } from '../../reasons.ts';
import { type BlockCodec, headerBytes } from '../block-header.ts';
import { Crc32OfParts } from '../crc32-of-parts.ts';
import type { CallCell } from './call-cell.ts';
import { AlignedMemory, alignedLength, directFlag } from './direct-io.ts';
import { codeOf, gaveUp, isMissing, remaining } from './disk-file.ts';

export interface ReadOptions {
  /** The date of the use. */
  readonly nowMs: number;
  /** Without the system's cache. Where the system refuses this for the file, the file is read through the cache. */
  readonly isDirect: boolean;
  /** How long after its date a file expires. Absent: never. */
  readonly ttlMs?: number | undefined;
}

/**
 * Reads and verifies blocks on an I/O thread. A call that was given up must not write the pool, and a read may never return.
 * So the file is read into memory of the thread, and each part is copied while the thread has claimed the call (`CallCell`).
 *
 *     file --read--> piece (in the CPU's cache) --checksum and copy--> pool        256 KiB at a time
 *     file --read--> aligned memory             --checksum and copy--> pool        O_DIRECT: the whole block
 *
 * Encrypted parts are decrypted before they are copied.
 *
 * A block in the pool may have parts of a corrupt file, which is what a failed load may leave there. On a Xeon at 2.8 GHz with files in
 * the system's cache, pieces load 1.5 times as fast as a copy of the whole block. The reason is that a piece is still in the CPU's
 * cache when its checksum is computed and when it is copied. With O_DIRECT, pieces would be slower: there is no read-ahead.
 */
export class BlockReader {
  readonly #codec: BlockCodec;
  readonly #crc32: Crc32;
  readonly #cell: CallCell;
  readonly #header = new Uint8Array(headerBytes);
  readonly #piece: Uint8Array;
  readonly #aligned: AlignedMemory;
  readonly #parts = new Crc32OfParts();

  constructor(codec: BlockCodec, crc32: Crc32, cell: CallCell) {
    const { blockBytes } = codec.identity;
    this.#codec = codec;
    this.#crc32 = crc32;
    this.#cell = cell;
    this.#piece = new Uint8Array(Math.min(pieceBytes, blockBytes));
    this.#aligned = new AlignedMemory(headerBytes + blockBytes);
  }

  /**
   * Undefined: `into` has the verified block. A reason: it has any bytes. Throws the errors of the file system, and if the
   * call was given up.
   */
  read(path: string, key: BlockKey, into: Uint8Array, options: ReadOptions): MissReason | undefined {
    assert(into.length === this.#codec.identity.blockBytes, `a block of ${into.length} bytes`);
    if (!options.isDirect) return this.#read(path, key, into, options);
    try {
      return this.#read(path, key, into, options);
    } catch (error) {
      if (codeOf(error) !== 'EINVAL') throw error;
      return this.#read(path, key, into, { ...options, isDirect: false });
    }
  }

  #read(path: string, key: BlockKey, into: Uint8Array, options: ReadOptions): MissReason | undefined {
    const { isDirect } = options;
    const file = openBlock(path, isDirect);
    if (file === undefined) return 'missing';
    try {
      const stats = fstatSync(file);
      if (stats.isDirectory()) return 'notABlock';
      const reason =
        isDirect && stats.isFile()
          ? this.#readWhole(file, stats.size, key, into)
          : this.#readInPieces(file, stats, key, into);
      if (reason === undefined) markUsed(path, stats, options);
      return reason;
    } finally {
      closeSync(file);
    }
  }

  #readInPieces(file: number, stats: Stats, key: BlockKey, into: Uint8Array): MissReason | undefined {
    const { blockBytes } = this.#codec.identity;
    const [header, piece, parts] = [this.#header, this.#piece, this.#parts];
    let count = piece.length;
    const bytesRead = this.#fill(file, [header, piece]);
    // A FIFO without a writer does not show whether the block is stored.
    if (bytesRead === 0 && !stats.isFile()) throw notAFile();
    // Only a regular file shows its size in advance.
    const isShort = bytesRead < headerBytes + count;
    const storedBytes = isShort ? bytesRead : stats.isFile() ? stats.size : headerBytes + blockBytes;
    const reason = this.#codec.verifyHeader(key, header, storedBytes);
    if (reason !== undefined) return reason;
    const reader = this.#codec.reader(header);
    parts.begin();
    for (let done = 0; ; ) {
      const plain = reader.plainOf(piece.subarray(0, count));
      parts.add(this.#give(into.subarray(done, done + count), plain), count);
      done += count;
      assert(done <= blockBytes, `${done} bytes were copied to a block of ${blockBytes}`);
      if (done === blockBytes) return reader.verdict(parts.value);
      count = Math.min(piece.length, blockBytes - done);
      if (this.#fill(file, [piece.subarray(0, count)]) < count) return 'truncated';
    }
  }

  #readWhole(file: number, size: number, key: BlockKey, into: Uint8Array): MissReason | undefined {
    const memory = this.#aligned.bytes();
    let total = 0;
    for (;;) {
      this.#checkWanted();
      const bytesRead = readSync(file, memory, total, memory.length - total, total);
      total += bytesRead;
      // The next read must begin at a multiple of the alignment, and only the end of the file is at another place.
      if (bytesRead === 0 || total === memory.length || total !== alignedLength(total)) break;
    }
    // If the memory is full, the file may be longer.
    const storedBytes = total === memory.length ? size : total;
    const header = memory.subarray(0, headerBytes);
    const reason = this.#codec.verifyHeader(key, header, storedBytes);
    if (reason !== undefined) return reason;
    const reader = this.#codec.reader(header);
    const payload = memory.subarray(headerBytes, headerBytes + into.length);
    return reader.verdict(this.#give(into, reader.plainOf(payload)));
  }

  /** Copies into the pool unless the call was given up, and returns the CRC32. */
  #give(into: Uint8Array, from: Uint8Array): number {
    assert(into.length === from.length, `${from.length} bytes for memory of ${into.length}`);
    if (!this.#cell.claim()) throw gaveUp();
    const crc = this.#copy(into, from);
    if (!this.#cell.release()) throw gaveUp();
    return crc;
  }

  #copy(into: Uint8Array, from: Uint8Array): number {
    if (this.#crc32.copy !== undefined) return this.#crc32.copy(into, from);
    into.set(from);
    return this.#crc32(from);
  }

  /** Fills the buffers, one after the other, unless the file ends before. Returns the number of bytes. */
  #fill(file: number, buffers: readonly Uint8Array[]): number {
    const wanted = buffers.reduce((sum, { length }) => sum + length, 0);
    let total = 0;
    while (total < wanted) {
      this.#checkWanted();
      const bytesRead = readvSync(file, remaining(buffers, total));
      if (bytesRead === 0) break;
      total += bytesRead;
    }
    return total;
  }

  #checkWanted(): void {
    if (this.#cell.isAbandoned) throw gaveUp();
  }
}

/** Fits into a core's second-level cache, also if two threads share it. */
const pieceBytes = 256 * 1024;
/** So that a block that is loaded often costs few writes to the disk. With a short time to live, a tenth of that. */
const useKeptMs = 60_000;

/** Undefined if there is no such file. */
function openBlock(path: string, isDirect: boolean): number | undefined {
  try {
    return openSync(path, isDirect ? directFlag : 'r');
  } catch (error) {
    if (isMissing(error)) return undefined;
    throw error;
  }
}

/**
 * The date of a file is the date of its last use, at most a minute late. So the oldest file is the least recently used
 * block, also after a restart and for other engines.
 */
function markUsed(path: string, stats: Stats, { nowMs, ttlMs = Number.POSITIVE_INFINITY }: ReadOptions): void {
  if (!stats.isFile() || nowMs - stats.mtimeMs < Math.min(useKeptMs, ttlMs / 10)) return;
  try {
    // By the path: Windows refuses this for a file that was opened for reading.
    utimesSync(path, nowMs / 1000, nowMs / 1000);
  } catch {
    // A read-only file system, or a file of another user. The block is still loaded.
    return;
  }
}

const notAFile = (): Error =>
  Object.assign(new Error('the block is not a regular file, and has no content'), { code: 'ENODATA' });
