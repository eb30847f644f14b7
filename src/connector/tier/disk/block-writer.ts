import { fdatasyncSync, ftruncateSync } from 'node:fs';
import { assert } from '../../../base/assert.ts';
import type { BlockKey } from '../../block-key.ts';
import type { Crc32 } from '../../connector.ts';
import type { SaltTag } from '../../salt-tag.ts';
import { type BlockCodec, headerBytes } from '../block-header.ts';
import { Crc32OfParts } from '../crc32-of-parts.ts';
import { AlignedMemory, directNewFileFlag } from './direct-io.ts';
import { codeOf, newFileFlag, type StillWanted, writeAll, writeFileAtomically } from './disk-file.ts';

export interface BlockWriterOptions {
  /** Whether the bytes are synced to the disk before the block can be found. */
  readonly fsync: boolean;
  readonly stillWanted: StillWanted;
}

export interface WriteOptions {
  /** Distinguishes temporary files of this process from all others'. */
  readonly temporaryName: string;
  /** The CRC32 of the block if it is known. */
  readonly payloadCrc: number | undefined;
  readonly saltTag: SaltTag | undefined;
  /** Without the system's cache. Where the system refuses this, the file is written through the cache. */
  readonly isDirect: boolean;
}

/**
 * Writes blocks on an I/O thread.
 *
 *     known checksum:    header and block in one call
 *     unknown checksum:  256 KiB of the block at a time, each still in the CPU's cache after its checksum; then the header
 *     O_DIRECT:          header and block are copied to aligned memory, which is written in one call
 *     encrypted:         the same, with and without O_DIRECT
 *
 * If the call is given up, the caller may use the memory of the block again while this thread reads it. The file then has any
 * content, and never gets its name: `stillWanted` throws before that.
 */
export class BlockWriter {
  readonly #codec: BlockCodec;
  readonly #crc32: Crc32;
  readonly #options: BlockWriterOptions;
  readonly #aligned: AlignedMemory;
  readonly #parts = new Crc32OfParts();

  constructor(codec: BlockCodec, crc32: Crc32, options: BlockWriterOptions) {
    this.#codec = codec;
    this.#crc32 = crc32;
    this.#options = options;
    this.#aligned = new AlignedMemory(headerBytes + codec.identity.blockBytes);
  }

  /** Throws the errors of the file system. After an error, only a temporary file may remain. */
  write(path: string, key: BlockKey, block: Uint8Array, options: WriteOptions): void {
    const { blockBytes } = this.#codec.identity;
    assert(block.length === blockBytes, `a block of ${block.length} bytes, and the blocks have ${blockBytes}`);
    if (!options.isDirect) {
      this.#write(path, options, newFileFlag, (file) => this.#writeCached(file, key, block, options));
      return;
    }
    try {
      this.#write(path, options, directNewFileFlag, (file) => this.#writeDirect(file, key, block, options));
    } catch (error) {
      if (codeOf(error) !== 'EINVAL') throw error;
      this.write(path, key, block, { ...options, isDirect: false });
    }
  }

  #write(path: string, { temporaryName }: WriteOptions, flag: string | number, write: (file: number) => void): void {
    const { fsync, stillWanted } = this.#options;
    writeFileAtomically(path, { temporaryName, flag, fsync, stillWanted }, (file) => {
      stillWanted();
      write(file);
      if (fsync) fdatasyncSync(file);
    });
  }

  #writeCached(file: number, key: BlockKey, block: Uint8Array, options: WriteOptions): void {
    const { payloadCrc, saltTag } = options;
    if (this.#codec.encrypts) {
      const stored = this.#aligned.bytes().subarray(0, headerBytes + block.length);
      this.#codec.encodeInto(key, block, stored, options);
      writeAll(file, [stored], 0);
      return;
    }
    if (payloadCrc !== undefined) {
      writeAll(file, [this.#codec.encode(key, block, payloadCrc, saltTag), block], 0);
      return;
    }
    this.#parts.begin();
    for (let at = 0; at < block.length; at += pieceBytes) {
      const piece = block.subarray(at, at + pieceBytes);
      this.#parts.add(this.#crc32(piece), piece.length);
      writeAll(file, [piece], headerBytes + at);
      this.#options.stillWanted();
    }
    writeAll(file, [this.#codec.encode(key, block, this.#parts.value, saltTag)], 0);
  }

  #writeDirect(file: number, key: BlockKey, block: Uint8Array, options: WriteOptions): void {
    const memory = this.#aligned.bytes();
    const end = headerBytes + block.length;
    this.#codec.encodeInto(key, block, memory.subarray(0, end), options);
    writeAll(file, [memory], 0);
    if (memory.length > end) ftruncateSync(file, end);
  }
}

/** Fits into a core's second-level cache, also if two threads share it. */
const pieceBytes = 256 * 1024;
