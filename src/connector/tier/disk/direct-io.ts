import { closeSync, constants, openSync, readSync } from 'node:fs';
import { assert } from '../../../base/assert.ts';
import { addressOfBytes } from '../../../base/native-memory.ts';
import { codeOf } from './disk-file.ts';

/**
 * Reading and writing without the system's cache (`O_DIRECT`). The addresses, positions and lengths must be multiples of the
 * disk's sector, which is at most 4096 bytes. The stored format does not change: a file is read up to the next multiple, and
 * written up to the next multiple and then truncated.
 */
const alignment = 4096;

/** Undefined on systems without `O_DIRECT`. */
const direct: number | undefined = constants.O_DIRECT;
export const directFlag = constants.O_RDONLY | (direct ?? 0);
export const directNewFileFlag = constants.O_WRONLY | constants.O_CREAT | constants.O_EXCL | (direct ?? 0);

export const alignedLength = (length: number): number => Math.ceil(length / alignment) * alignment;

/** Memory at an aligned address, of at least `length` bytes. It is allocated at first use. */
export class AlignedMemory {
  readonly #length: number;
  #bytes: Uint8Array | undefined;

  constructor(length: number) {
    this.#length = alignedLength(length);
  }

  bytes(): Uint8Array {
    this.#bytes ??= allocate(this.#length);
    return this.#bytes;
  }
}

function allocate(length: number): Uint8Array {
  const memory = new Uint8Array(length + alignment);
  const skip = (alignment - (addressOfBytes(memory).base % alignment)) % alignment;
  const bytes = memory.subarray(skip, skip + length);
  assert(bytes.length === length, `${bytes.length} of ${length} bytes are aligned`);
  return bytes;
}

/** Why this file cannot be read without the system's cache; undefined if it can. */
export function whyNotDirect(
  path: string,
  open: (path: string, flags: number) => number = openSync,
): string | undefined {
  if (direct === undefined) return 'this system has no O_DIRECT';
  try {
    const file = open(path, directFlag);
    try {
      readSync(file, new AlignedMemory(alignment).bytes(), 0, alignment, 0);
      return undefined;
    } finally {
      closeSync(file);
    }
  } catch (error) {
    return codeOf(error) ?? 'error';
  }
}
